"""Whether a run has made its last step, where it logs its epochs beside its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.logs.pattern_search import compile_patterns
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import has_all_steps
from trainwarden_exporter.progress.tracker import ProgressTracker

TOTAL = 30
Lines = Callable[[int, int], Iterable[str]]
"""The lines of a step, by epoch and number in it."""


class Night:
    """A run of a framework, whose log is read as it is printed."""

    def __init__(self, framework: str) -> None:
        known = get_framework(framework)
        patterns = (*known.lines, *known.default_lines)
        self._search = compile_patterns(patterns)
        lines = {("main", one.name): one for one in patterns}
        self.now = 1_000_000.0
        self._tracker = ProgressTracker(
            [ProgressSpec("night", lines=lines)], now=lambda: self.now, elapsed=lambda: self.now
        )

    def prints(self, lines: Iterable[str]) -> None:
        self.now += 2
        text = "".join(f"{line}\n" for line in lines).encode()
        for line in self._search.search(text, 0, len(text)):
            for match in line.matches:
                name, groups = match.pattern.name, match.groups
                event = LineEvent("night", "main", "trainer", name, groups, self.now)
                self._tracker.record_line(event)

    def begins_again(self) -> None:
        """Starts its process again."""
        self.now += 20
        self._tracker.record_trainer("night", self.now, finished=False)

    @property
    def made(self) -> bool:
        return has_all_steps(self._tracker.state("night"))


def bar(step: int) -> str:
    return f"{100 * step // TOTAL:3d}%|█████     | {step}/{TOTAL} [00:10<00:20,  1.03it/s]"


def once(line: str, step: int, *, at: int = 1) -> list[str]:
    return [line] if step == at else []


EPOCHS: dict[str, Lines] = {
    "behind": lambda epoch, step: [f"step {step}/30 | epoch {epoch}/5 | loss 0.5"],
    "behind, of unknown": lambda epoch, step: [f"step {step}/30 epoch {epoch} loss 0.5"],
    "in front": lambda epoch, step: [f"Epoch [{epoch}/5], Step [{step}/30], Loss: 0.5"],
    "ep": lambda epoch, step: [f"step {step}/30 ep {epoch} loss 0.5"],
    "fraction": lambda epoch, step: [
        f"step {step}/30 {{'loss': 0.5, 'epoch': {epoch - 1 + step / TOTAL:.2f}}}"
    ],
    "heading": lambda epoch, step: [
        *once(f"===== Epoch {epoch}/5 =====", step),
        f"step {step}/30 loss 0.5",
    ],
    "sentence": lambda epoch, step: [
        *once(f"Starting epoch {epoch}", step),
        f"step {step}/30 loss 0.5",
    ],
}


@pytest.mark.parametrize("lines", EPOCHS.values(), ids=EPOCHS)
def test_the_end_of_an_epoch_is_not_known_to_be_that_of_the_run(lines: Lines) -> None:
    night = Night("generic")
    for epoch in (1, 2):
        for step in range(1, TOTAL + 1):
            night.prints(lines(epoch, step))
        assert not night.made


BARS: dict[str, Lines] = {
    "heading": lambda epoch, step: [*once(f"Epoch {epoch}/3", step), bar(step)],
    "from zero": lambda epoch, step: [*once(f"Epoch {epoch - 1}/3", step), bar(step)],
    "at its end": lambda epoch, step: [bar(step), *once(f"Epoch {epoch}/3", step, at=TOTAL)],
}


@pytest.mark.parametrize("lines", BARS.values(), ids=BARS)
def test_a_bar_of_each_epoch_ends_the_run_in_the_last_one(lines: Lines) -> None:
    night, made = Night("trl"), []
    for epoch in (1, 2, 3):
        for step in range(1, TOTAL + 1):
            night.prints(lines(epoch, step))
        made.append(night.made)
    assert made == [False, False, True]


WHOLE: dict[str, tuple[str, Lines]] = {
    "no epochs": ("generic", lambda _, step: [f"step {step}/30 loss 0.5"]),
    "one epoch": ("generic", lambda _, step: [f"step {step}/30 | epoch 1/1 | loss 0.5"]),
    "several": ("generic", lambda _, step: [f"step {step}/30 | epoch {1 + (step - 1) // 10}/3"]),
    "fractions": ("generic", lambda _, step: [f"step {step}/30 epoch {step / 10:.2f} loss 0.5"]),
    "configured": ("generic", lambda _, step: [
        *once("num_epoch: 3, steps per epoch: 30, max epoch: 3", step), f"step {step}/30 loss 0.5"
    ]),
    "trainer": ("trl", lambda _, step: [
        bar(step), f"{{'loss': 0.5, 'grad_norm': 1.0, 'epoch': {step / TOTAL:.2f}}}"
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("framework", "lines"), WHOLE.values(), ids=WHOLE)
def test_all_steps_are_made_where_the_total_is_that_of_the_run(
    framework: str, lines: Lines
) -> None:
    """It may export or upload for long from then on."""
    night = Night(framework)
    for step in range(1, TOTAL + 1):
        assert not night.made
        night.prints(lines(1, step))
    assert night.made


def test_a_fraction_that_is_rounded_up_begins_no_epoch() -> None:
    night = Night("generic")
    for step in range(498, 501):
        night.prints([f"step {step}/500 epoch {step / 500:.2f} loss 0.5"])
    assert not night.made


def test_an_epoch_that_a_restart_begins_again_is_one_of_several() -> None:
    night = Night("generic")
    for epoch, last in ((1, TOTAL), (2, 10)):
        for step in range(1, last + 1):
            night.prints(EPOCHS["in front"](epoch, step))
    night.begins_again()
    for step in range(1, TOTAL + 1):
        night.prints(EPOCHS["in front"](2, step))
    assert not night.made
