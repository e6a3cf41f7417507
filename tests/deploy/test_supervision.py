from __future__ import annotations

from collections.abc import Mapping

import pytest

from supervision import Program, changes


def programs(state: str, pid: int, status: int = 0) -> Mapping[str, Program]:
    return {"exporter": Program("exporter", state, pid, status)}


RUNNING = programs("RUNNING", 10)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (RUNNING, []),
        (programs("EXITED", 0, 3), ["exporter ended with status 3"]),
        (programs("BACKOFF", 0, -1), ["exporter ended by a signal"]),
        (programs("STARTING", 11), ["exporter ended and was started again"]),
        (programs("FATAL", 0), ["exporter keeps ending and is not started any more"]),
        (programs("STOPPING", 10), []),
    ],
)
def test_what_changed_is_reported(now: Mapping[str, Program], message: list[str]) -> None:
    assert list(changes(RUNNING, now)) == message


def test_a_reported_event_is_not_reported_again() -> None:
    fatal = programs("FATAL", 0)
    assert list(changes(fatal, fatal)) == []
