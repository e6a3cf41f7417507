"""Each line of each framework is read as what it is, by the engine that reads logs in earnest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
import re2  # type: ignore[import-untyped]

from framework_lines import LINES, Line
from trainwarden_exporter.layouts import LAYOUTS, layout
from trainwarden_exporter.layouts.base import LinePattern, Phase
from trainwarden_exporter.layouts.troubles import SHARED
from trainwarden_exporter.logs.regexes import RegexSet


def hits(patterns: Iterable[LinePattern], text: str) -> dict[str, Mapping[str, str]]:
    """The groups that took part, by pattern."""
    found: dict[str, Mapping[str, str]] = {}
    for pattern in patterns:
        match = re2.search(pattern.regex, text)
        if match is not None:
            groups = match.groupdict().items()
            found[pattern.name] = {name: value for name, value in groups if value is not None}
    return found


@pytest.mark.parametrize(
    ("framework", "line"),
    [(name, line) for name, lines in LINES.items() for line in lines],
    ids=lambda one: one if isinstance(one, str) else one.plain[-60:],
)
def test_a_line_is_read_as_what_it_is_and_as_nothing_else(framework: str, line: Line) -> None:
    assert hits(layout(framework).lines, line.plain) == line.hits
    assert hits(SHARED, line.plain).keys() == line.shared


@pytest.mark.parametrize("framework", LINES)
def test_all_patterns_together_find_in_bytes_what_each_finds_in_text(framework: str) -> None:
    patterns = (*layout(framework).lines, *SHARED)
    together = RegexSet([pattern.regex for pattern in patterns])
    for line in LINES[framework]:
        found = {patterns[place].name for place in together.matching(line.plain.encode())}
        assert found == {*line.hits, *line.shared}


@pytest.mark.parametrize("framework", LINES)
def test_every_pattern_of_a_framework_is_shown_by_a_line(framework: str) -> None:
    shown = {name for line in LINES[framework] for name in line.hits}
    assert {pattern.name for pattern in layout(framework).lines} == shown


def test_every_framework_has_lines_here() -> None:
    assert {one.name for one in LAYOUTS if one.lines} == set(LINES)


PHASES = {
    "areal": "resumed:starting step:training finished:finished",
    "prime_rl": "resumed:starting waiting:waiting_for_rollouts saving:saving step:training "
    "step_before_0_6:training finished:finished",
    "verl": "resumed:starting step:training saving:saving finished:finished",
    "openrlhf": "resumed:starting step:training evaluating:evaluating",
    "trl": "resumed:starting logged:training saving:saving evaluating:evaluating finished:finished",
    "slime": "resumed:starting training:training saving:saving waiting:waiting_for_rollouts "
    "updating_weights:updating_weights",
    "nemo_rl": "step:training training:training generating:waiting_for_rollouts "
    "refit:updating_weights evaluating:evaluating saving:saving finished:finished",
    "torchtitan": "started:starting step:training saving:saving finished:finished",
    "lightning": "resumed:starting evaluating:evaluating finished:finished",
    "optuna": "",
    "skyrl": "resumed:starting step:training training:training generating:waiting_for_rollouts "
    "saving:saving syncing:updating_weights evaluating:evaluating finished:finished",
    "ray_train": "started:training restarting:starting finished:finished",
}


@pytest.mark.parametrize("framework", PHASES)
def test_lines_begin_the_phases_that_they_name(framework: str) -> None:
    begun = {f"{one.name}:{one.phase}" for one in layout(framework).lines if one.phase is not None}
    assert begun == set(PHASES[framework].split())


LASTING = {Phase.SAVING, Phase.EVALUATING, Phase.UPDATING_WEIGHTS, Phase.WAITING_FOR_ROLLOUTS}


@pytest.mark.parametrize("framework", PHASES)
def test_a_phase_that_no_step_line_ends_is_ended_by_a_line_of_its_own(framework: str) -> None:
    """So that no run is taken to save or to wait for ever."""
    lines = layout(framework).lines
    begun = {one.phase for one in lines if one.phase in LASTING}
    trained = any(one.phase is Phase.TRAINING for one in lines)
    assert trained or begun <= {one.ends for one in lines}
