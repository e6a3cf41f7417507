from __future__ import annotations

import logging

from trainwarden_exporter.runtime.repeated_logs import MAX_MESSAGES, RepetitionFilter


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, None)
    return logging.LogRecord("test", logging.WARNING, __file__, 1, message, (), info)


def test_a_message_passes_once_a_minute_with_the_number_of_omitted_ones() -> None:
    now = 0.0
    passes = RepetitionFilter(lambda: now).filter
    assert [bool(passes(record("full"))) for _ in range(4)] == [True, False, False, False]
    now = 60.0
    assert passes(again := record("full"))
    assert vars(again)["omitted"] == 3
    now = 120.0
    assert passes(again := record("full"))
    assert "omitted" not in vars(again)


def test_other_messages_and_other_exceptions_are_not_affected() -> None:
    passes = RepetitionFilter(lambda: 0.0).filter
    assert passes(record("full"))
    assert passes(record("closed"))
    assert passes(record("full", ValueError()))
    assert not passes(record("full\n<another task>"))


def test_the_memory_for_different_messages_is_bounded() -> None:
    filter_ = RepetitionFilter(lambda: 0.0)
    assert all(filter_.filter(record(f"message {n}")) for n in range(10 * MAX_MESSAGES))
    assert len(filter_._passed_at) <= MAX_MESSAGES
