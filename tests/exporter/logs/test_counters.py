from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.counters import (
    MAX_ERROR_LINES,
    MAX_STREAMS,
    ErrorLine,
    LineCounters,
    LineSource,
)
from trainwarden_exporter.logs.deduplication import LineDeduplicator
from trainwarden_exporter.logs.pattern_search import MatchedLine, compile_patterns
from trainwarden_exporter.logs.state import Counts

PATTERNS = (
    LinePattern("brake", "emergency brake", error=True),
    LinePattern("error", "error|brake", error=True),
    LinePattern("trial", r"trial (?P<trial>\d+) done, loss (?P<loss>\S+)", resets="brake"),
)
HERE = LineSource("/a.log", "a.log")


def parse(text: str, patterns: Sequence[LinePattern] = PATTERNS) -> MatchedLine:
    line = text.encode()
    (found,) = compile_patterns(patterns).search(line + b"\n", 0, len(line) + 1)
    return found


def tally(
    counts: Counts | None = None, deduplicator: LineDeduplicator | None = None, log: str = "log"
) -> LineCounters:
    return LineCounters("run", log, PATTERNS, counts or Counts(), deduplicator=deduplicator)


def test_each_pattern_counts_and_the_line_once_as_trouble() -> None:
    one = tally()
    one.add(parse("emergency brake!"), HERE, 10.0)
    one.add(parse("error"), HERE, 9.0)
    assert one.counts.matches == {"brake": 1, "error": 2}
    assert one.counts.last_matches == {"brake": 10.0, "error": 10.0}
    assert one.counts.troubles == 2


def test_a_failed_trial_and_its_traceback_are_one_error() -> None:
    patterns = (*get_framework("optuna").lines, *COMMON_ERROR_PATTERNS)
    one = LineCounters("run", "log", patterns)
    failed = "[W 2026-08-21 05:08:31,218] Trial {} failed with parameters: {{}} because of the x."
    traceback = "Traceback (most recent call last):"
    for trial in range(3):
        one.add(parse(failed.format(trial), patterns), HERE, 100.0 + trial)
        one.add(parse(traceback, patterns), HERE, 101.0 + trial)
    assert one.counts.troubles == 3
    one.add(parse(traceback, patterns), HERE, 200.0)
    one.add(parse(traceback, patterns), LineSource("/b.log", "b.log"), 103.0)
    assert one.counts.troubles == 5
    assert one.counts.matches["exception"] == 5


def test_a_row_goes_on_until_a_line_ends_it() -> None:
    one = tally()
    assert one.streaks == {"brake": 0}
    for _ in range(12):
        one.add(parse("emergency brake"), HERE, 1.0)
        one.add(parse("error"), HERE, 1.0)
    assert one.streaks == {"brake": 12}
    one.add(parse("trial 3 done, loss 1"), HERE, 2.0)
    assert one.streaks == {"brake": 0}


def test_a_row_belongs_to_the_file_that_was_written_last() -> None:
    one = tally()
    other = LineSource("/b.log", "*.log")
    for _ in range(11):
        one.add(parse("emergency brake"), HERE, 1.0)
    one.add(parse("emergency brake"), other, 2.0)
    assert one.streaks == {"brake": 1}
    one.add(parse("trial 1 done, loss 1"), other, 3.0)
    assert one.streaks == {"brake": 0}
    one.add(parse("emergency brake"), HERE, 4.0)
    assert one.streaks == {"brake": 12}


def test_copies_count_once_and_rows_in_each_log() -> None:
    deduplicator = LineDeduplicator()
    trainer, wandb = (
        tally(deduplicator=deduplicator, log="trainer"),
        tally(deduplicator=deduplicator, log="wandb"),
    )
    line = parse("[rank0]: emergency brake")
    assert [match.pattern.name for match in trainer.add(line, HERE, 1.0)] == ["brake", "error"]
    assert trainer.add(line, HERE, 1.0)
    for _ in range(2):
        assert wandb.add(parse("emergency brake"), LineSource("/w", "w"), 1.0) == ()
    assert trainer.counts.troubles + wandb.counts.troubles == 2
    assert wandb.counts.matches == {}
    assert trainer.streaks == wandb.streaks == {"brake": 2}


def test_numbers_are_kept_with_their_time_and_may_be_none() -> None:
    one = tally()
    one.record_values(parse("trial 4 done, loss 0.5"), 10.0)
    one.record_values(parse("trial 3 done, loss 0.25"), 9.0)
    assert (one.values["loss"].number, one.values["loss"].timestamp) == (0.5, 10.0)
    one.record_values(parse("trial 5 done, loss nan"), 11.0)
    assert math.isnan(one.values["loss"].number)
    assert not one.values["loss"].finite
    assert one.values["trial"].finite


def test_of_a_value_that_is_no_longer_finite_the_last_step_before_is_known() -> None:
    generic = get_framework("generic")
    patterns = (*generic.lines, *generic.default_lines)
    one = LineCounters("run", "log", patterns)

    def add(text: str, timestamp: float) -> int | None:
        one.record_values(parse(text, patterns), timestamp)
        return one.values["loss"].finite_until

    assert add("step 10 loss nan", 1.0) is None, "it was never finite"
    assert add("step 29 loss 1.5", 2.0) == 29
    assert [add("step 30 loss nan", 3.0), add("step 31 loss inf", 4.0)] == [29, 29]
    assert add("step 32 loss 1.5", 5.0) == 32
    # A resume from an earlier step: what lies between was made again.
    assert add("step 21 loss nan", 6.0) == 20


def test_without_a_step_the_time_is_known_at_which_a_value_was_finite() -> None:
    generic = get_framework("generic")
    patterns = (*generic.lines, *generic.default_lines)
    one = LineCounters("run", "log", patterns)

    def add(loss: str, timestamp: float, *, dated: bool = True) -> float:
        text = f"{{'loss': {loss}, 'epoch': 0.1}}"
        one.record_values(parse(text, patterns), timestamp, dated=dated)
        return one.counts.finite_at.get("loss", -1.0)

    assert add("nan", 1.0) == 0.0, "it was never finite"
    assert [add("1.5", 2.0), add("1.4", 3.0)] == [-1.0, -1.0]
    # Read together with the last finite one: which was written first is not known.
    assert [add("nan", 3.0), add("inf", 4.0)] == [2.0, 2.0]
    assert [add("1.5", 5.0), add("nan", 6.0)] == [-1.0, 5.0]
    # Of lines that were there at the first reading, only the last write is known.
    assert [add("1.5", 7.0, dated=False), add("nan", 8.0)] == [-1.0, 5.0]
    again = LineCounters("run", "log", patterns, one.counts)
    assert again.counts.finite_at == {"loss": 5.0}
    again.record_values(parse("{'loss': nan, 'epoch': 0.1}", patterns), 9.0)
    assert again.counts.finite_at == {"loss": 5.0}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("phase one :: step 12 loss 0.5 token=abcdef0123456789", "phase one :: step 12 loss 0.5"),
        ("[worker-a] global_step=12", "[worker-a] global_step=12"),
        ("Batch 12/500", "Batch 12/500"),
        ("step 12 loss 0.5", ""),
        ("2026-11-29 23:18:34,841 INFO my.train: step=63", ""),
        ("the model has 12 steps", ""),
        ("saved /out/step 12", ""),
    ],
)
def test_a_line_with_a_step_that_is_not_read_is_kept_for_display(line: str, shown: str) -> None:
    generic = get_framework("generic")
    patterns = (*generic.lines, *generic.default_lines)
    one = LineCounters("run", "log", patterns)
    for match in compile_patterns(patterns).search(line.encode(), 0, len(line)):
        one.record_values(match, 1.0)
    assert one.unread_step.startswith(shown)
    assert bool(one.unread_step) == bool(shown)
    assert "abcdef0123456789" not in one.unread_step


def test_lines_of_trouble_that_differ_in_numbers_only_are_shown_as_one() -> None:
    one = tally()
    one.add(parse("10:00:01 error \x07 in worker 3"), HERE, 1.0)
    one.add(parse("error elsewhere"), HERE, 2.0)
    one.add(parse("10:00:09 error \x07 in worker 4"), HERE, 3.0)
    assert one.error_lines == (
        ErrorLine("run", "log", "error", "error elsewhere", 2.0, 1),
        ErrorLine("run", "log", "error", "10:00:09 error   in worker 4", 3.0, 2),
    )


def test_what_is_recalled_is_shown_and_not_counted() -> None:
    one = tally()
    one.record_uncounted(parse("error of yesterday"), HERE.origin, 5.0)
    assert one.counts.matches == {}
    assert one.counts.troubles == 0
    assert one.counts.last_matches == {"error": 5.0}
    assert [line.line for line in one.error_lines] == ["error of yesterday"]


def test_counts_go_on_in_another_life_for_the_patterns_that_there_are_still() -> None:
    one = tally()
    one.add(parse("emergency brake"), HERE, 1.0)
    before = Counts(
        matches={**one.counts.matches, "gone": 7},
        last_matches={**one.counts.last_matches, "gone": 1.0},
        troubles=one.counts.troubles,
        streaks=one.counts.streaks,
    )
    other = tally(before)
    assert other.counts == one.counts
    assert other.streaks == {"brake": 1}


def test_memory_is_bounded() -> None:
    one = tally()
    for number in range(MAX_STREAMS + 50):
        source = LineSource(f"/{number}", "*")
        one.add(parse("emergency brake " + "x" * (number % 50)), source, float(number))
    assert len(one.counts.streaks) == MAX_STREAMS
    assert len(one.error_lines) == MAX_ERROR_LINES


TRACEBACK_LINE = "Traceback (most recent call last):"
FRAMES = '  File "train.py", line 7, in <module>\n    load("/data")\n'


def after_traceback(following: str, *more: str) -> tuple[ErrorLine, ...]:
    one = LineCounters("run", "log", COMMON_ERROR_PATTERNS)
    one.add(parse(TRACEBACK_LINE, COMMON_ERROR_PATTERNS), HERE, 1.0)
    for text in (following, *more):
        one.name_exception(HERE.origin, text)
    return one.error_lines


def test_a_traceback_is_shown_by_its_exception() -> None:
    for raised in ("ValueError: no such dataset", "torch._dynamo.exc.Unsupported: x", "Again"):
        (shown,) = after_traceback(f"{FRAMES}{raised}\nand its text\n")
        assert (shown.pattern, shown.line, shown.count) == ("exception", raised, 1)


def test_an_exception_that_is_written_later_is_found_later() -> None:
    (shown,) = after_traceback(FRAMES, "    load()\nValueError: late\n", "KeyError: other\n")
    assert shown.line == "ValueError: late"


def test_a_traceback_whose_process_was_killed_stays_one() -> None:
    (shown,) = after_traceback(FRAMES, "trainwarden: 2026-11-28T17:00:00Z process 7 ended\n")
    assert shown.line == TRACEBACK_LINE


def test_an_exception_of_a_kind_of_its_own_is_shown_once() -> None:
    raised = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    one = LineCounters("run", "log", COMMON_ERROR_PATTERNS)
    one.add(parse(TRACEBACK_LINE, COMMON_ERROR_PATTERNS), HERE, 1.0)
    one.name_exception(HERE.origin, f"{FRAMES}{raised}\n")
    one.add(parse(raised, COMMON_ERROR_PATTERNS), HERE, 1.0)
    assert [(line.pattern, line.line) for line in one.error_lines] == [
        ("gpu_out_of_memory", raised)
    ]
