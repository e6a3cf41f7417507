from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.pattern_search import (
    MatchedLine,
    PatternMatch,
    PatternSearch,
    compile_patterns,
    gauge_values,
)

PATTERNS = (
    LinePattern("step", r"step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)"),
    LinePattern("error", "(?i)error", error=True),
    LinePattern("start", "^begin"),
    LinePattern("end", "over$"),
)


def search(text: bytes, start: int = 0, end: int | None = None) -> list[MatchedLine]:
    return list(PatternSearch(PATTERNS).search(text, start, len(text) if end is None else end))


def reported(text: bytes) -> list[tuple[bytes, list[str]]]:
    return [(one.text, [match.pattern.name for match in one.matches]) for one in search(text)]


def test_each_telling_line_is_found_once_with_all_that_matches() -> None:
    text = b"begin\nnothing\nERROR error, game over\nbeginning of an Error\nnot begin\nover\n"
    assert reported(text) == [
        (b"begin", ["start"]),
        (b"ERROR error, game over", ["error", "end"]),
        (b"beginning of an Error", ["error", "start"]),
        (b"over", ["end"]),
    ]


def test_only_what_stands_between_start_and_end_is_searched() -> None:
    text = b"error 1\nerror 2\nerror 3\n"
    assert [line.text for line in search(text, 8, 16)] == [b"error 2"]
    assert [line.text for line in search(text, 8)] == [b"error 2", b"error 3"]


def test_groups_are_what_they_matched() -> None:
    (line,) = search(b"x step 3/10 loss nan!\n")
    assert line.matches == (
        PatternMatch(PATTERNS[0], {"step": "3", "total": "10", "loss": "nan!"}),
    )


def test_without_patterns_there_is_no_match() -> None:
    assert list(PatternSearch(()).search(b"a\n", 0, 2)) == []


def test_what_looks_for_the_same_is_compiled_once() -> None:
    assert compile_patterns(PATTERNS) is compile_patterns((*PATTERNS[:1], *PATTERNS[1:]))


def test_gauges_are_numbers_that_do_not_tell_progress() -> None:
    pattern = LinePattern("p", ".", values=("kl", "perf/mfu"))
    match = PatternMatch(pattern, {"step": "3", "seconds": "1s", "loss": "-inf", "mode": "sync"})
    found = dict(gauge_values(match, "kl: 0.5 - perf/mfu: nothing"))
    assert found == {"loss": -math.inf, "kl": 0.5}


@given(
    st.lists(st.sampled_from([b"error", b"over", b"begin", b"", b"x", b"overt ERROR"]), max_size=20)
)
def test_a_block_is_searched_as_its_lines_would_be(lines: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    alone = [one for line in lines for one in reported(line + b"\n")]
    assert reported(text) == alone
