"""What answers to a storm come to."""

from __future__ import annotations

from webhook_storm import Answer, row


def test_only_answers_of_200_count_as_such_and_the_rate_is_of_all() -> None:
    answers = [Answer(200, 0.1), Answer(200, 0.2), Answer(503, 0.3), Answer(0, 9.0)]
    what, good, *spans, rate, cpu = row("four", answers, 2.0, 0.5)
    assert (what, good, rate, cpu) == ("four", "2 of 4", "2", "0.50 s")
    assert spans == ["300.0 ms", "9000.0 ms", "9000.0 ms"]
