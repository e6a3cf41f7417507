from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.config import Config, with_announced
from trainwarden_exporter.disk.mounts import Mount
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.scrape.validation import validated
from trainwarden_exporter.step_dirs.filesystem import FileSystem

NOW = 1_000_000.0
Samples = dict[tuple[str, str, str], float]


def run(path: Path, name: str = "demo", **more: Any) -> RunConfig:
    given = {
        "name": name,
        "path": str(path),
        "checkpoints": [
            {
                "name": "own",
                "folder": "ckpt",
                "entry": r"step_(?P<step>\d+)",
                "complete": {"marker": ["DONE"]},
                "partial": r"tmp_step_(?P<step>\d+)",
                **more,
            }
        ],
    }
    return RunConfig.model_validate(given)


def write(path: Path, moment: float, size: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    for one in (path, path.parent):
        os.utime(one, (moment, moment))


def save(path: Path, step: int, moment: float) -> None:
    write(path / f"ckpt/step_{step}/weights", moment - 30)
    write(path / f"ckpt/step_{step}/DONE", moment, 0)


def samples(collector: CheckpointsCollector) -> Samples:
    """Every sample by short name, run and path."""
    return {
        (
            sample.name.removeprefix("trainwarden_").removeprefix("checkpoint_"),
            sample.labels["run"],
            sample.labels.get("path", ""),
        ): sample.value
        for family in validated(collector.collect(), collector.metrics)
        for sample in family.samples
    }


def of(found: Samples, run: str = "demo") -> dict[str, float]:
    return {name: value for (name, of_run, _), value in found.items() if of_run == run}


@pytest.fixture
def closing() -> Iterator[Callable[[CheckpointsCollector], CheckpointsCollector]]:
    opened: list[CheckpointsCollector] = []

    def keep(collector: CheckpointsCollector) -> CheckpointsCollector:
        opened.append(collector)
        return collector

    yield keep
    for collector in opened:
        collector._pollers.close()
        collector._provers.close()


Closing = Callable[[CheckpointsCollector], CheckpointsCollector]


def test_one_file_that_is_overwritten_is_a_checkpoint_of_an_unknown_step(
    tmp_path: Path, closing: Closing
) -> None:
    write(tmp_path / "ckpt.pkl", NOW - 40)
    found = announced(closing, tmp_path)
    own = "trainer-overwritten"
    assert (found["complete", own], found["complete", "trainer"]) == (1, 0)
    assert found["timestamp_seconds", own] == NOW - 40
    assert ("step", own) not in found


def test_a_checkpoint_of_json_that_is_rewritten_counts_at_once(
    tmp_path: Path, closing: Closing
) -> None:
    (tmp_path / "checkpoint.json").write_text('{"step": 10}')
    os.utime(tmp_path / "checkpoint.json", (NOW - 1, NOW - 1))
    assert announced(closing, tmp_path)["timestamp_seconds", "trainer-overwritten"] == NOW - 1


@pytest.mark.parametrize(
    ("files", "quiet", "shown"),
    [
        ({"model.pt2": 100, "step_40.json": 9}, 6, {"settling"}),
        ({"model.pt2": 100, "step_40.json": 9}, 4, {"saving", "settling"}),
        ({"model.pt2": 98, "step_40.json": 9}, 6, {"saving", "settling"}),
        ({"model.pt2": 100}, 6, {"saving", "settling"}),
        ({"model.pt2": 100, "other.json": 9}, 6, {"saving", "settling"}),
        ({"model.pt2": 100, "step_40.json": 9}, 31, set()),
    ],
)
def test_a_save_with_all_that_the_one_before_has_is_over_after_seconds(
    tmp_path: Path, closing: Closing, files: dict[str, int], quiet: float, shown: set[str]
) -> None:
    for name, size in (("model.pt2", 100), ("step_20.json", 9)):
        write(tmp_path / "checkpoint-20" / name, NOW - 90, size)
    assert ("saving", "trainer") not in announced(closing, tmp_path)
    for name, size in files.items():
        write(tmp_path / "checkpoint-40" / name, NOW - quiet, size)
    found = announced(closing, tmp_path)
    assert {name for name in ("saving", "settling") if (name, "trainer") in found} == shown


@pytest.mark.parametrize("quiet", [4, 6])
def test_a_run_saves_until_its_checkpoint_has_all_that_the_one_before_has(
    tmp_path: Path, closing: Closing, quiet: float
) -> None:
    """As long as its files settle after that, the run is no longer in the phase of a save."""
    for step, moment in ((20, NOW - 90), (40, NOW - quiet)):
        write(tmp_path / f"ckpt/step_{step}/weights", moment)
    config = run(tmp_path, complete={"settled": ["*"]})
    collector = closing(CheckpointsCollector([config], now=lambda: NOW))
    samples(collector)
    assert list(collector.saves_in_progress()) == [("demo", NOW - 4 if quiet == 4 else None)]


def test_a_file_from_before_is_no_part_of_a_save(tmp_path: Path, closing: Closing) -> None:
    """A checkpoint that is written again has files of the same size from the first line on."""
    for step, moment in ((20, NOW - 90), (40, NOW - 200)):
        for name in ("model.pt2", "optimizer.pt2"):
            write(tmp_path / f"checkpoint-{step}" / name, moment)
    write(tmp_path / "checkpoint-40/model.pt2", NOW - 6, 200)
    found = announced(closing, tmp_path)
    assert found["saving", "trainer"] == 1


def test_what_a_proof_is_awaited_of_is_being_saved(tmp_path: Path, closing: Closing) -> None:
    save(tmp_path, 20, NOW - 90)
    write(tmp_path / "ckpt/step_40/weights", NOW - 20)
    found = of(samples(closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))))
    assert (found["saving"], found["settling"]) == (1, 0)


def test_a_save_is_not_over_before_its_tracker_names_it(tmp_path: Path, closing: Closing) -> None:
    for step, moment in ((20, NOW - 90), (40, NOW - 20)):
        write(tmp_path / f"ckpt/step_{step}/weights", moment)
    (tmp_path / "ckpt/latest.txt").write_text("20")
    os.utime(tmp_path / "ckpt/latest.txt", (NOW - 80, NOW - 80))
    tracked = run(tmp_path, complete={"tracker": "latest.txt"})
    found = of(samples(closing(CheckpointsCollector([tracked], now=lambda: NOW))))
    assert (found["complete"], found["saving"], found["settling"]) == (1, 1, 0)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, closing: Closing) -> None:
    found = announced(closing, tmp_path / "a [typo]")
    named = ("missing_folder_info", "trainer")
    assert found[named] == 1
    assert named not in announced(closing, tmp_path)


def test_an_empty_file_with_a_number_is_no_checkpoint(tmp_path: Path, closing: Closing) -> None:
    write(tmp_path / "ckpt_000020.pth", NOW - 90)
    for name in ("rank-began-0", "epoch-3.log"):
        write(tmp_path / name, NOW - 40, 0)
    found = announced(closing, tmp_path)
    assert (found["complete", "trainer"], found["step", "trainer"]) == (1, 20)
    assert not {("incomplete", "trainer"), ("unexamined", "trainer")} & found.keys()


@pytest.mark.parametrize("name", ["step-40.pkl", "checkpoint_40"])
def test_an_empty_file_that_is_named_like_a_save_counts(
    tmp_path: Path, closing: Closing, name: str
) -> None:
    write(tmp_path / name, NOW - 40, 0)
    assert announced(closing, tmp_path)["complete", "trainer"] == 1


def test_what_is_saved_under_another_name_than_a_checkpoint_is_shown(
    tmp_path: Path, closing: Closing
) -> None:
    for name in ("notes.md", "state.bin", ".hidden", "b.txt", "weights.bin"):
        write(tmp_path / name, NOW - 40)
    found = announced(closing, tmp_path)
    names = "b.txt, notes.md, state.bin"
    assert found["others_info", "trainer", names] == 1
    assert found["others_info", "trainer-overwritten", names] == 1
    write(tmp_path / "ckpt.pkl", NOW - 40)
    found = announced(closing, tmp_path)
    assert [key for key in found if "others_info" in key] == [
        ("others_info", "trainer", "b.txt, ckpt.pkl, notes.md")
    ]


def announced(closing: Closing, folder: Path) -> dict[tuple[str, ...], float]:
    """The values by name, kind and names, of the checkpoints that a run announces."""
    content = {"checkpoints": str(folder), "run": "demo", "worker": "trainer", "pid": 7}
    one = AnnouncedWorker(Announcement.model_validate(content), folder / "a.json", os.geteuid())
    config, _ = with_announced(Config(), AnnouncedRuns({one.announcement.key: one}))
    collector = closing(CheckpointsCollector(config.runs, now=lambda: NOW))
    return {
        (
            sample.name.removeprefix("trainwarden_checkpoint_"),
            sample.labels["checkpoint"],
            *([sample.labels["names"]] if "names" in sample.labels else []),
        ): value
        for family in collector.collect()
        for sample in family.samples
        if (value := sample.value) or sample.name.endswith("_complete")
    }


def test_nothing_configured_is_no_fault() -> None:
    with pytest.raises(NoData):
        CheckpointsCollector([RunConfig(name="demo")]).collect()


def test_every_metric_is_shown_for_a_run_that_saves(tmp_path: Path, closing: Closing) -> None:
    for number, step in enumerate((10, 20, 30)):
        save(tmp_path, step, NOW - 1_300 + 600 * number)
    write(tmp_path / "ckpt/tmp_step_40/weights", NOW - 20)
    collector = closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))
    found = of(samples(collector))

    left = found.pop("disk_checkpoints_left")
    assert left > 1
    assert found == {
        "seen_timestamp_seconds": NOW,
        "folders": 1,
        "step": 30,
        "timestamp_seconds": NOW - 100,
        "size_bytes": 100,
        "save_seconds": 30,
        "complete": 3,
        "incomplete": 1,
        "unexamined": 0,
        "incomplete_step": 40,
        "incomplete_info": 1,
        "incomplete_timestamp_seconds": NOW - 20,
        "saving": 1,
        "settling": 0,
        "interval_seconds": 600,
    }


def test_the_newest_checkpoint_and_the_saving_worker_are_artifacts(
    tmp_path: Path, closing: Closing
) -> None:
    save(tmp_path, 10, NOW - 500)
    write(tmp_path / "ckpt/step_20/weights", NOW - 40)
    write(tmp_path / "ckpt/step_20/optimizer", NOW - 5)
    collector = closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))
    samples(collector)
    assert list(collector.newest_checkpoints()) == [("demo", "own", 10, NOW - 500, NOW - 530)]
    assert list(collector.saves_in_progress()) == [("demo", NOW - 40)]


def test_the_first_request_starts_no_scan(tmp_path: Path, closing: Closing) -> None:
    """After a reload, that would be a second scan beside the running one."""
    save(tmp_path, 10, NOW - 500)
    filesystem = Hanging(tmp_path)
    filesystem.go_on.set()
    collector = closing(CheckpointsCollector([run(tmp_path)], filesystem=filesystem))
    assert [*collector.newest_checkpoints(), *collector.saves_in_progress()] == []
    assert filesystem.asked == 0


def test_a_save_that_stands_still_is_no_save_any_more(tmp_path: Path, closing: Closing) -> None:
    write(tmp_path / "ckpt/step_40/weights", NOW - 61)
    collector = closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))
    found = of(samples(collector))
    assert (found["saving"], found["incomplete_step"]) == (0, 40)
    assert list(collector.saves_in_progress()) == [("demo", None)]
    assert not {"step", "timestamp_seconds", "size_bytes", "disk_checkpoints_left"} & set(found)


def test_before_the_first_save_only_what_is_configured_is_known(
    tmp_path: Path, closing: Closing
) -> None:
    collector = closing(CheckpointsCollector([run(tmp_path, interval="30m")], now=lambda: NOW))
    assert of(samples(collector)) == {
        "seen_timestamp_seconds": NOW,
        "folders": 0,
        "interval_seconds": 1800,
    }


def test_saves_that_are_closer_than_files_settle_are_not_overdue_for_good(
    tmp_path: Path, closing: Closing
) -> None:
    config = run(tmp_path, complete={"settled": ["*"], "settled_for": "45s"}, interval="10s")
    collector = closing(CheckpointsCollector([config], now=lambda: NOW))
    assert of(samples(collector))["interval_seconds"] == 45


def test_steps_are_those_of_the_run_and_not_of_the_names(tmp_path: Path, closing: Closing) -> None:
    save(tmp_path, 1869, NOW - 100)
    write(tmp_path / "ckpt/step_1899/weights", NOW - 5)
    recovery = {"file": "info.json", "step": r"step (?P<step>\d+)", "step_offset": 1}
    config = run(tmp_path, step_offset=1, recovery=recovery)
    (tmp_path / "info.json").write_text("step 1868")
    collector = closing(CheckpointsCollector([config], now=lambda: NOW))
    found = of(samples(collector))
    assert (found["step"], found["incomplete_step"]) == (1870, 1900)
    assert (found["recovery_step"], found["recovery_matches"]) == (1869, 0)
    assert list(collector.newest_checkpoints()) == [("demo", "own", 1870, NOW - 100, NOW - 130)]
    written = (tmp_path / "info.json").stat().st_mtime
    assert list(collector.resume_points()) == [("demo", [(1869, written)])]


def test_the_problem_of_a_resume_is_named(
    tmp_path: Path, closing: Closing, wait_until: Callable[[Callable[[], Any]], None]
) -> None:
    save(tmp_path, 10, NOW - 100)
    (tmp_path / "ckpt/step_10/optim.pt").write_bytes(b"PK\3\4cut")
    os.utime(tmp_path / "ckpt/step_10/optim.pt", (NOW - 110, NOW - 110))
    collector = closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))
    wait_until(lambda: of(samples(collector)).get("resume_damaged") == 1)
    named = [
        (one.labels["problem"], one.labels["kind"])
        for family in collector.collect()
        for one in family.samples
        if one.name.endswith("resume_problem_info")
    ]
    problem = "step_10: optim.pt: the directory at its end is missing (truncated)"
    assert named == [(problem, "truncated")]


def test_a_resume_is_sound_from_the_proved_checkpoints(
    tmp_path: Path, closing: Closing, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    save(tmp_path, 10, NOW - 90)
    write(tmp_path / "ckpt/step_20/config.json", NOW - 80)  # which is no JSON
    write(tmp_path / "ckpt/step_20/DONE", NOW - 70, 0)
    collector = closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))
    wait_until(lambda: of(samples(collector)).get("proved") == 1)
    assert list(collector.resume_points()) == [("demo", [(10, NOW - 90)])]


def test_a_name_that_holds_an_epoch_has_no_step_to_resume_from(
    tmp_path: Path, closing: Closing, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    names = ("checkpoint-epoch-7", "epoch=3-step=300")
    for number, name in enumerate(names):
        write(tmp_path / f"ckpt/{name}/DONE", NOW - 90 + number, 0)
    entry = r"(?:checkpoint-epoch-|epoch=\d+-step=)(?P<step>\d+)"
    collector = closing(CheckpointsCollector([run(tmp_path, entry=entry)], now=lambda: NOW))
    wait_until(lambda: of(samples(collector)).get("proved") == 2)
    assert list(collector.resume_points()) == [("demo", [(300, NOW - 89)])]


@pytest.mark.parametrize("unread", [(20, 30), ()])
def test_the_oldest_one_after_the_newest_proved_that_is_not_read_yet_is_named(
    tmp_path: Path,
    closing: Closing,
    wait_until: Callable[[Callable[[], bool]], None],
    unread: tuple[int, ...],
) -> None:
    """As of a run that saves faster than its checkpoints can be read."""
    save(tmp_path, 10, NOW - 90)
    for step in unread:
        save(tmp_path, step, NOW - 6 + step / 10)
    collector = closing(CheckpointsCollector([run(tmp_path)], now=lambda: NOW))
    wait_until(lambda: of(samples(collector)).get("proved") == 1)
    found = of(samples(collector))
    assert (found["proved_step"], found.get("unproved_step")) == (10, min(unread, default=None))


def test_the_missing_file_of_a_recovery_record_is_named(tmp_path: Path, closing: Closing) -> None:
    (tmp_path / "info").mkdir()
    (tmp_path / "info/step.json").write_text("step 1868")
    regex = r"step (?P<step>\d+)"
    config = run(
        tmp_path, recovery={"file": "info/step.json", "step": regex, "written_last": "info/b"}
    )

    def missing() -> list[str]:
        collector = closing(CheckpointsCollector([config], now=lambda: NOW))
        shown = (
            one
            for family in validated(collector.collect(), collector.metrics)
            for one in family.samples
        )
        return [one.labels["file"] for one in shown if one.name.endswith("recovery_missing_file")]

    assert missing() == ["info/b"]
    (tmp_path / "info/b").write_text("x")
    assert missing() == []


def test_the_disk_is_called_as_its_own_collector_calls_it(tmp_path: Path, closing: Closing) -> None:
    save(tmp_path, 1, NOW - 100)

    def label(mount: Mount) -> str:
        return f"the disk of {mount.fstype}"

    collector = closing(CheckpointsCollector([run(tmp_path)], disk_label=label))
    (path,) = (path for name, _, path in samples(collector) if name == "disk_checkpoints_left")
    assert path.startswith("the disk of ")


class Hanging(FileSystem):
    """A disk with one folder that does not answer until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.go_on = threading.Event()
        self.waited_out = False
        self.asked = 0

    def iter_names(self, folder: str) -> Iterator[str]:
        if folder.startswith(self.folder):
            self.asked += 1
            self.waited_out = not self.go_on.wait(60)
        return super().iter_names(folder)


def test_a_dead_mount_delays_nobody_and_hides_nothing_else(
    tmp_path: Path, closing: Closing, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    for path in (dead, alive):
        save(path, 10, NOW - 100)
    filesystem = Hanging(dead / "ckpt")
    runs = [run(dead, "dead"), run(alive, "alive")]
    collector = closing(CheckpointsCollector(runs, filesystem=filesystem))
    samples(collector)  # the first one waits for a first look
    for _ in range(50):
        found = samples(collector)
    assert not filesystem.waited_out
    assert of(found, "alive")["step"] == 10
    assert of(found, "dead").keys() == {"seen_timestamp_seconds"}
    assert [name for name, *_ in collector.newest_checkpoints()] == ["alive"]
    assert filesystem.asked == 1
    filesystem.go_on.set()
    wait_until(lambda: of(samples(collector), "dead").get("step") == 10)


def test_a_reload_goes_on_with_what_is_known(tmp_path: Path, closing: Closing) -> None:
    save(tmp_path, 10, NOW - 100)
    filesystem = Hanging(tmp_path / "none")
    old = closing(CheckpointsCollector([run(tmp_path), run(tmp_path, "b")], now=lambda: NOW))
    samples(old)
    new = closing(CheckpointsCollector([run(tmp_path)], filesystem=filesystem, now=lambda: NOW + 5))
    new.take_over_from(old)
    found = samples(new)
    assert of(found)["seen_timestamp_seconds"] == NOW
    assert of(found, "b") == {}


def test_a_folder_that_may_not_be_read_is_not_shown_as_empty(
    tmp_path: Path, closing: Closing, as_nobody: Callable[[], Any], caplog: Any
) -> None:
    save(tmp_path, 10, NOW - 100)
    (tmp_path / "ckpt").chmod(0o700)
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    collector = closing(CheckpointsCollector([run(tmp_path)]))
    with as_nobody():
        # how long ago that is says that it cannot be seen
        assert of(samples(collector)).keys() == {"seen_timestamp_seconds"}
    # a second poller proves what is found: each may warn once; pollers of other tests may warn too
    watches = [str(record.watch) for record in caplog.records if record.message == "watch failed"]
    own = [watch for watch in watches if watch.startswith(("checkpoints ", "proofs "))]
    assert len(own) == len(set(own))
    assert any(watch.startswith("checkpoints ") for watch in own)
