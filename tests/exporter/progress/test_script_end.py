"""A run whose script is over though its process lives: it has finished, or has failed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.stacks.endings import EndKind, ScriptEnd
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import STUCK_SECONDS
from trainwarden_exporter.progress.tracker import ProgressTracker

NOW = 1_000_000.0
WAITS = "process 7 of trainer waits for another thread in _shutdown (threading.py:1583)"
PATTERNS = (
    LinePattern("step", "…", phase=Phase.TRAINING),
    LinePattern("exception", "…", error=True),
)
SPEC = ProgressSpec("night", lines={("trainer", one.name): one for one in PATTERNS})


@dataclass
class Night:
    """Ten steps of five seconds each; then the script is over as `end` says."""

    end: ScriptEnd | None = None
    now: float = NOW
    spec: ProgressSpec = SPEC
    total: int | None = None
    tracker: ProgressTracker = field(init=False)

    def __post_init__(self) -> None:
        self.tracker = ProgressTracker([self.spec], now=lambda: self.now, elapsed=lambda: self.now)
        self.collector = ProgressCollector(
            [self.spec], self.tracker, script_end=lambda _run, _silence: self.end
        )
        self.train(1, 10)

    def line(self, pattern: str, **groups: str) -> None:
        event = LineEvent("night", "trainer", "trainer", pattern, groups, self.now, fresh=True)
        self.tracker.record_line(event)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.now += 5
            total = {} if self.total is None else {"total": str(self.total)}
            self.line("step", step=str(step), **total)

    def shown(self) -> dict[str, float]:
        self.now += 60
        samples = [one for family in self.collector.collect() for one in family.samples]
        return {
            " ".join((one.name.removeprefix("trainwarden_training_"), *labels)): one.value
            for one in samples
            for labels in [list(one.labels.values())[1:]]
        }


@pytest.mark.parametrize(
    ("total", "made"), [(12, [0, 0, 1]), (None, [0, 0, 0])], ids=["of 12", "of an unknown number"]
)
def test_a_run_has_made_its_last_step_once_it_has_made_all_of_them(
    total: int | None, made: list[float]
) -> None:
    """It has not finished: it may save, merge and upload for long."""
    patterns = replace(PATTERNS[0], total_of="line"), PATTERNS[1]
    spec = replace(SPEC, lines={("trainer", one.name): one for one in patterns})
    night = Night(spec=spec, total=total)
    seen = [night.shown()]
    night.train(11, 11)
    seen.append(night.shown())
    night.train(12, 12)
    seen.append(night.shown())
    assert [one["last_step_made"] for one in seen] == made
    assert [one["finished"] for one in seen] == [0, 0, 0]


def test_a_run_whose_script_is_over_has_finished_at_its_last_step() -> None:
    night = Night()
    last = night.now
    night.end = ScriptEnd(EndKind.LEFT, WAITS)
    shown = night.shown()
    assert shown["finished"] == 1
    assert shown["phase_timestamp_seconds"] == last
    assert shown[f"unended_info {WAITS}"] == 1
    assert "stall_restart_limit_seconds" not in shown
    night.end = None  # its stacks are not read any more
    assert night.shown()["finished"] == 1
    night.train(11, 12)
    shown = night.shown()
    assert shown["finished"] == 0
    assert f"unended_info {WAITS}" not in shown


@pytest.mark.parametrize("kind", [None, EndKind.LEFT_TO_THREAD, EndKind.GONE])
def test_what_may_go_on_has_not_finished(kind: EndKind | None) -> None:
    night = Night()
    night.end = None if kind is None else ScriptEnd(kind, WAITS)
    shown = night.shown()
    assert shown["finished"] == 0
    assert shown["stall_restart_limit_seconds"] > STUCK_SECONDS


@pytest.mark.parametrize("kind", list(EndKind))
def test_a_script_that_an_error_has_ended_is_as_good_as_stuck(kind: EndKind) -> None:
    """Not if another thread of its own may make the steps, and has caught the error."""
    night = Night()
    night.line("exception")
    night.end = ScriptEnd(kind, WAITS)
    shown = night.shown()
    assert shown["finished"] == 0
    is_stuck = shown["stall_restart_limit_seconds"] == STUCK_SECONDS
    assert is_stuck is (kind is not EndKind.LEFT_TO_THREAD)


def test_an_error_before_the_last_step_has_ended_nothing() -> None:
    night = Night()
    night.line("exception")
    night.train(11, 12)
    night.end = ScriptEnd(EndKind.LEFT, WAITS)
    assert night.shown()["finished"] == 1
