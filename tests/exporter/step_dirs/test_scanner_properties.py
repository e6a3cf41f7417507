"""Whatever a run writes, renames and deletes, and whenever it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    JsonStepRule,
    MarkerRule,
    RenamedRule,
    TrackerRule,
)
from trainwarden_exporter.step_dirs.index import StepIndex
from trainwarden_exporter.step_dirs.names import NameParser
from trainwarden_exporter.step_dirs.result import ScanResult
from trainwarden_exporter.step_dirs.scanner import FolderScanner
from trainwarden_exporter.step_dirs.throttle import Throttle

if TYPE_CHECKING:
    from tests.exporter.step_dirs.conftest import MemoryDisk

PROOFS: dict[str, CompletenessRule] = {
    "marker": MarkerRule(("DONE",)),
    "last": MarkerRule(("DONE",), last=True),
    "json": JsonStepRule("DONE", "step"),
    "tracker": TrackerRule("latest.txt"),
    "renamed": RenamedRule(),
}
STEPS = NameParser(r"step_(?P<step>\d+)", r"tmp_step_(?P<step>\d+)")
FILES = ("config", "shards/weights", "shards/optimizer")
PAUSES = (0.01, 0.2, 4.0, 40.0)

Deed = Callable[[], None]


@dataclass
class Run:
    """Writes checkpoints in one of the ways frameworks do, a little at a time."""

    kind: str
    filesystem: MemoryDisk
    whole: dict[int, bool] = field(default_factory=dict)
    """By step, whether that on disk is whole."""
    shown: set[int] = field(default_factory=set)
    """Steps that were seen complete as they are now."""
    hidden: set[int] = field(default_factory=set)
    """Steps given up halfway, above which the tracker has named another one since."""
    last: int = 0
    """The step that was saved last."""
    deeds: list[Deed] = field(default_factory=list)

    def proceed(self) -> None:
        """Do the next little thing."""
        if self.deeds:
            self.deeds.pop(0)()

    def save(self, step: int) -> None:
        """Begin to save, in place where there is such a step; what was under way is given up."""
        if not self._may_touch(step):
            return
        where = f"run/{'tmp_' if self.kind == 'renamed' else ''}step_{step}"
        self.deeds = [self._wait, *self._writes(where, step), *self._ending(where, step)]

    def delete(self, step: int, sort_key: list[int]) -> None:
        """Begin to delete file by file, in any order; what was under way is given up."""
        if step in self.whole and self._may_touch(step):
            self.deeds = [self._wait, *(partial(self._remove, step, number) for number in sort_key)]
            self.deeds.append(lambda: self._clear(step))

    def _may_touch(self, step: int) -> bool:
        # A checkpoint that was whole for an instant between two scans, and has lost half by the
        # second, looks whole: a save is minutes away from the next.
        return not self.whole.get(step) or step in self.shown

    def _writes(self, where: str, step: int) -> Iterator[Deed]:
        for number, name in enumerate(FILES):
            for size in (10, 40 + number):
                yield partial(self._write, where, step, name, size)

    def _ending(self, where: str, step: int) -> Iterator[Deed]:
        if self.kind == "renamed":
            yield lambda: self._clear(step)
        yield lambda: self._finish(where, step)

    def _finish(self, where: str, step: int) -> None:
        if self.kind == "tracker":
            self.filesystem.write("run/latest.txt", text=str(step))
            halves = {lower for lower, is_whole in self.whole.items() if not is_whole}
            self.hidden = {lower for lower in halves | self.hidden if lower < step}
        elif self.kind == "renamed":
            self.filesystem.rename(where, f"run/step_{step}")
        else:
            self.filesystem.write(f"{where}/DONE", text=f'{{"step": {step}}}')
        self.whole[step], self.last = True, step

    def _wait(self) -> None:
        self.filesystem.moment += 5

    def _write(self, where: str, step: int, name: str, size: int) -> None:
        if not where.startswith("run/tmp_"):
            self._spoil(step)
        self.filesystem.write(f"{where}/{name}", size)

    def _remove(self, step: int, number: int) -> None:
        with suppress(KeyError):  # it has no such file
            self.filesystem.remove(f"run/step_{step}/{(*FILES, 'DONE')[number]}")
            self._spoil(step)

    def _spoil(self, step: int) -> None:
        self.whole[step] = False
        self.shown.discard(step)

    def _clear(self, step: int) -> None:
        if any(named.name == f"step_{step}" for named in self.filesystem.list_folder("run")):
            self.filesystem.remove(f"run/step_{step}")
        self.whole.pop(step, None)
        self.shown.discard(step)


STEP = st.integers(1, 4)
SAVE = st.tuples(st.just("save"), STEP)
DELETE = st.tuples(st.just("delete"), STEP, st.permutations(range(4)))
PROCEED = st.tuples(st.just("proceed"), st.integers(1, 9), st.sampled_from(PAUSES))
LOOK = st.tuples(st.just("look"), st.lists(st.integers(0, 12), max_size=4), st.sampled_from(PAUSES))
STORY = st.lists(st.one_of(SAVE, DELETE, PROCEED, PROCEED, LOOK, LOOK), max_size=40)
OF_SAVES = st.lists(st.one_of(SAVE, PROCEED, PROCEED, LOOK, LOOK), max_size=40)


def _saved(step: int, times: int = 8) -> list[tuple[object, ...]]:
    return [("save", step), ("proceed", times, 0.01), ("look", [], 40.0), ("look", [], 0.01)]


BACK = [("save", 3), ("proceed", 4, 0.01), *_saved(4), *_saved(2), *_saved(2, 4), *_saved(4, 4)]
"""A save is given up halfway, the next succeeds; then the run goes back to a lower step."""


@pytest.mark.parametrize("kind", PROOFS)
@settings(max_examples=300)
@given(story=STORY)
def test_what_is_not_whole_is_never_the_newest(
    kind: str, new_disk: type[MemoryDisk], story: list[tuple[object, ...]]
) -> None:
    quiet(*tell(kind, new_disk, story))


@pytest.mark.parametrize("kind", PROOFS)
@settings(max_examples=100)
@given(story=OF_SAVES)
@example(story=BACK)
def test_nor_is_it_where_no_list_of_files_is_kept(
    kind: str, new_disk: type[MemoryDisk], story: list[tuple[object, ...]]
) -> None:
    """As of old entries, here also of the newest.

    So this test deletes no file: only that list shows that a file is missing.
    """
    put = StepIndex.put
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepIndex, "put", lambda known, one: put(known, replace(one, files=None)))
        tell(kind, new_disk, story)


def tell(
    kind: str, new_disk: type[MemoryDisk], story: list[tuple[object, ...]]
) -> tuple[FolderScanner, Run]:
    """Let a run do what the story says, and look on."""
    filesystem = new_disk()
    filesystem.make("run")
    run = Run(kind, filesystem)
    looks = FolderScanner(
        "run",
        STEPS,
        PROOFS[kind],
        filesystem=filesystem,
        throttle=Throttle(sleep=lambda _: None),
        now=lambda: filesystem.moment,
        clock=lambda: 0.0,
    )
    for chapter in story:
        match chapter:
            case ("save", int(step)):
                run.save(step)
            case ("delete", int(step), list(sort_key)):
                run.delete(step, sort_key)
            case ("proceed", int(times), float(pause)):
                for _ in range(times):
                    run.proceed()
                    filesystem.moment += pause
            case ("look", list(when), float(pause)):
                scan(looks, run, when)
                filesystem.moment += pause
    return looks, run


def scan(looks: FolderScanner, run: Run, when: list[int]) -> None:
    """Look, while the run proceeds before those questions of it that `when` numbers."""
    whole = {step for step, is_whole in run.whole.items() if is_whole}
    asked = 0

    def meanwhile() -> None:
        nonlocal asked
        run.filesystem.before_each = lambda: None  # the run asks too
        if asked in when:
            run.proceed()
            run.filesystem.moment += 0.01
            whole.update(step for step, is_whole in run.whole.items() if is_whole)
        asked += 1
        run.filesystem.before_each = meanwhile

    run.filesystem.before_each = meanwhile
    result = looks.scan()
    run.filesystem.before_each = lambda: None
    complete = reported(result, run)
    assert complete <= whole
    run.shown |= {step for step in complete if run.whole.get(step)}


def quiet(looks: FolderScanner, run: Run) -> None:
    """What was saved is shown in the end, when nothing happens any more."""
    whole = {step for step, is_whole in run.whole.items() if is_whole}
    for _ in range(4):
        run.filesystem.moment += 31
        result = looks.scan()
    if run.kind == "tracker":
        assert reported(result, run) <= whole
        assert reported(result, run) or run.last not in whole
    else:
        assert reported(result, run) == whole


def reported(result: ScanResult, run: Run) -> set[int]:
    """The steps that are reported complete, as far as the proof can tell.

    A tracker names one step; of those below, it cannot tell which were given up halfway.
    """
    steps = [entry.name.number or 0 for entry in result.complete]
    if run.kind != "tracker":
        return set(steps)
    return set([step for step in steps if step not in run.hidden][:1])
