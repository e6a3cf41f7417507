from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks.completeness_rules import MarkerRule
from trainwarden_exporter.frameworks.path_resolution import RunInstance
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.locations import (
    FOUND_SECONDS,
    MAX_FOLDERS,
    MAX_FOUND_SECONDS,
    MAX_SHARE,
    InstanceFinder,
    RunLocation,
    StepDirScanner,
)
from trainwarden_exporter.step_dirs.names import NameParser

STEPS = NameParser(r"step_(?P<step>\d+)")
TEMPLATE = "{trial}/checkpoints"
LOGS = "{trial}/logs/*.log"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def save(folder: Path, step: int, moment: float) -> None:
    entry = folder / f"step_{step}"
    entry.mkdir(parents=True)
    (entry / "DONE").write_text("x")
    for path in (entry / "DONE", entry, folder):
        os.utime(path, (moment, moment))


def entries(path: Path, clock: Clock, *templates: str, variables: str = "") -> StepDirScanner:
    given = (("trial", variables),) if variables else ()
    location = RunLocation(path, (*templates, TEMPLATE), given)
    return StepDirScanner(
        InstanceFinder(location, clock=clock),
        templates[0] if templates else TEMPLATE,
        STEPS,
        MarkerRule(("DONE",)),
        clock=clock,
    )


def newest(found: StepDirScanner) -> int | None:
    entry = found.scan().newest
    return None if entry is None else entry.name.number


def test_the_folder_of_the_newest_run_is_looked_at(tmp_path: Path) -> None:
    save(tmp_path / "trial0/checkpoints", 100, 1_000)
    save(tmp_path / "trial1/checkpoints", 5, 2_000)
    found = entries(tmp_path, Clock())
    assert newest(found) == 5
    assert list(found.folders) == [tmp_path / "trial1/checkpoints"]
    assert newest(entries(tmp_path, Clock(), variables="trial0")) == 100


def test_another_run_is_noticed_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    save(tmp_path / "trial0/checkpoints", 100, 1_000)
    found = entries(tmp_path, clock)
    assert newest(found) == 100
    save(tmp_path / "trial1/checkpoints", 5, 2_000)
    assert newest(found) == 100
    clock.now += FOUND_SECONDS
    assert newest(found) == 5


def test_what_is_not_there_yet_or_any_more_is_looked_for_each_time(tmp_path: Path) -> None:
    found = entries(tmp_path, Clock())
    assert found.scan().complete_count == 0
    assert found.folders == {}
    save(tmp_path / "trial0/checkpoints", 100, 1_000)
    assert newest(found) == 100
    (tmp_path / "trial0").rename(tmp_path / "trial2")
    assert newest(found) is None
    assert newest(found) == 100


def test_several_folders_are_one(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / f"version_{number}", 10 * number + 1, 1_000 + number)
    found = entries(tmp_path, Clock(), "version_*")
    result = found.scan()
    assert [entry.name.number for entry in result.complete] == [21, 11, 1]
    assert result.complete_count == 3


def test_of_very_many_folders_those_are_read_that_changed_last(tmp_path: Path) -> None:
    for number in range(MAX_FOLDERS + 4):
        save(tmp_path / f"version_{number}", number, 1_000 + number)
    found = entries(tmp_path, Clock(), "version_*")
    result = found.scan()
    assert result.complete_count == MAX_FOLDERS
    assert result.newest is not None
    assert result.newest.name.number == MAX_FOLDERS + 3


def test_where_it_will_be_is_known(tmp_path: Path) -> None:
    found = entries(tmp_path, Clock(), variables="t")
    assert found.path is None
    found.scan()
    assert found.path == tmp_path / "t/checkpoints"


class TestAClosedFolder:
    class Closed(FileSystem):
        def iter_names(self, folder: str) -> Iterator[str]:
            raise PermissionError(13, "Permission denied", folder)

    def test_is_not_taken_for_an_empty_one(self, tmp_path: Path) -> None:
        save(tmp_path / "t/checkpoints", 1, 1_000)
        location = RunLocation(tmp_path, (TEMPLATE,))
        found = StepDirScanner(
            InstanceFinder(location),
            TEMPLATE,
            STEPS,
            MarkerRule(("DONE",)),
            filesystem=self.Closed(),
        )
        with pytest.raises(PermissionError):
            found.scan()

    @pytest.mark.parametrize(
        ("template", "closed", "matters"),
        [
            (TEMPLATE, "t", True),
            (TEMPLATE, ".", True),
            ("checkpoints/{trial}", "logs", False),
            ("checkpoints/{trial}", "checkpoints/x", True),
            ("checkpoints", "logs", False),
            ("/elsewhere/{trial}", "logs", False),
        ],
    )
    def test_matters_where_they_might_lie_in_it(
        self, tmp_path: Path, template: str, closed: str, *, matters: bool
    ) -> None:
        nothing = RunInstance({}, {template: ()}, unreadable=(tmp_path / closed,))
        location = RunLocation(tmp_path, (template,))
        found = StepDirScanner(
            InstanceFinder(location, resolve=lambda *_: nothing),
            template,
            STEPS,
            MarkerRule(("DONE",)),
        )
        if matters:
            with pytest.raises(PermissionError):
                found.scan()
        else:
            assert found.scan().complete_count == 0


class TestFinder:
    PLACE = RunLocation(Path("/run"), (TEMPLATE, LOGS), (("trial", "t"),))

    def finder(
        self, clock: Clock, *, seconds: float
    ) -> tuple[InstanceFinder, list[tuple[str, ...]]]:
        """A finder that takes so many seconds per search, and the arguments of its searches."""
        asked: list[tuple[str, ...]] = []

        def ask(_: Path, templates: Sequence[str], variables: Mapping[str, str]) -> RunInstance:
            clock.now += seconds
            asked.append((*templates, *variables.values()))
            return RunInstance(variables, {})

        return InstanceFinder(self.PLACE, resolve=ask, clock=clock), asked

    def test_asks_for_all_templates_together(self) -> None:
        found, asked = self.finder(Clock(), seconds=0)
        found.find()
        assert asked == [(TEMPLATE, LOGS, "t")]

    def test_looks_once_for_all_who_ask_within_a_while(self) -> None:
        clock = Clock()
        found, asked = self.finder(clock, seconds=0)
        for _ in range(5):
            assert found.find() is found.find()
        assert len(asked) == 1
        clock.now += FOUND_SECONDS
        found.find()
        assert len(asked) == 2

    def test_looks_again_at_once_where_that_costs_nothing(self) -> None:
        found, asked = self.finder(Clock(), seconds=0)
        for _ in range(3):
            found.find(refresh=True)
        assert len(asked) == 3

    def test_a_huge_folder_is_looked_through_the_more_seldom(self) -> None:
        clock = Clock()
        found, asked = self.finder(clock, seconds=3)
        for _ in range(60):
            found.find(refresh=True)
            clock.now += 2
        assert len(asked) * 3 / clock.now <= 2 * MAX_SHARE

    def test_a_mount_that_hung_for_long_is_not_given_up(self) -> None:
        clock = Clock()
        found, asked = self.finder(clock, seconds=36_000)
        found.find()
        clock.now += MAX_FOUND_SECONDS
        found.find()
        assert len(asked) == 2

    def test_says_once_what_an_operator_should_set_right(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock()
        doubtful = RunInstance(
            {"trial": "a"}, {}, other_recent_runs=({"trial": "b"},), truncated=True
        )
        found = InstanceFinder(self.PLACE, resolve=lambda *_: doubtful, clock=clock)
        for _ in range(3):
            found.find()
            clock.now += FOUND_SECONDS
        assert [record.message for record in caplog.records] == [
            "too much lies in the path of a run to be found",
            "several runs lie in one path; variables tell them apart",
        ]

    def test_looks_again_the_more_seldom_the_more_it_costs(self) -> None:
        clock = Clock()
        found, asked = self.finder(clock, seconds=0.2)
        for _ in range(12):
            found.find(refresh=True)
            clock.now += 5
        assert len(asked) == 3
