"""A run whose disk was full when it ended is not restarted into the full disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.observation.test_snapshot import PAGE
from tests.remediator.policy.test_decide import DISK, TRAINER, ago, incident, snapshot, state
from tests.remediator.samples import GIB, NOW, WORKERS, make_config, make_worker

from trainwarden_remediator.model import Decision
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.model import DiskState, RunState
from trainwarden_remediator.policy.decide import decide
from trainwarden_remediator.policy.full_disk import seen_without_room

GONE = incident(alert="TrainingWorkerGone", worker="trainer", remediation="start_missing_worker")
ENDED = make_worker(processes=0, started_at=None, last_exit_code=1, last_exit_at=NOW - 40)
CHECKPOINTS = replace(DISK, path="/data/ck", runs=frozenset({"demo"}))
FULL = replace(CHECKPOINTS, size=50 * GIB, free=GIB, free_floor=2.5 * GIB)
WITH_ROOM = replace(FULL, free=20 * GIB)
RUN = RunState(step=40, checkpoint=40, checkpoints=12, checkpoint_bytes=4 * GIB)


def decided(folder: Path, disk: DiskState, full_at: float | None = NOW - 41, **changes: Any) -> Any:
    seen = snapshot({TRAINER: changes.pop("worker", ENDED)})
    assert seen.exporter is not None
    run = replace(RUN, disk_full_at=full_at)
    seen = replace(seen, exporter=replace(seen.exporter, disks=(disk,), runs={"demo": run}))
    config = make_config(folder, *WORKERS)
    known: Decision = decide(GONE, state(config, snapshot=seen, **changes), NOW)
    return known.text, known.detail


def test_a_run_that_ended_without_space_waits_for_room(tmp_path: Path) -> None:
    assert decided(tmp_path, FULL) == (
        "wait disk_unusable",
        (
            "the run ended as no space was left, and the disk of /data/ck has 1.0 GiB free of"
            " 50.0 GiB; the run keeps 12 checkpoints of 4.0 GiB there"
        ),
    )
    assert decided(tmp_path, WITH_ROOM)[0] == "act restart"


@pytest.mark.parametrize(
    ("full_at", "worker"),
    [
        (None, ENDED),
        (NOW - 4000, ENDED),  # long before its end
        (NOW - 4000, replace(ENDED, last_exit_at=None)),
    ],
)
def test_scarce_space_alone_does_not_hold_it(
    tmp_path: Path, full_at: float | None, worker: Any
) -> None:
    assert decided(tmp_path, FULL, full_at, worker=worker)[0] == "act restart"


def test_an_end_that_was_not_observed_counts_by_its_error(tmp_path: Path) -> None:
    unseen = replace(ENDED, last_exit_at=None)
    assert decided(tmp_path, FULL, worker=unseen)[0] == "wait disk_unusable"


def test_without_room_for_another_checkpoint_it_waits_whatever_the_error(tmp_path: Path) -> None:
    text, detail = decided(tmp_path, replace(WITH_ROOM, checkpoints_left={"demo": 0.6}), None)
    assert text == "wait disk_unusable"
    assert detail.startswith("the disk of /data/ck has no room for another checkpoint: 20.0 GiB")
    other = replace(WITH_ROOM, checkpoints_left={"demo": 3.0, "second": 0.5})
    assert decided(tmp_path, other, None)[0] == "act restart"


def test_a_disk_with_nothing_known_but_its_room_holds_it_too(tmp_path: Path) -> None:
    """The exporter shows no more of the disk of a checkpoint folder that it does not watch."""
    left = 'trainwarden_disk_checkpoints_left{checkpoint="a",path="/data/ck",run="demo"} 0\n'
    (disk,) = parse_exporter_page(f"{PAGE}{left}".encode()).disks
    assert decided(tmp_path, disk) == (
        "wait disk_unusable",
        (
            "the disk of /data/ck has no room for another checkpoint: the run keeps 12 checkpoints"
            " of 4.0 GiB there"
        ),
    )


def test_a_second_end_without_space_is_a_quota_or_a_disk_that_is_not_watched(
    tmp_path: Path,
) -> None:
    before = (replace(ago(300, TRAINER), result="done"),)
    text, detail = decided(tmp_path, WITH_ROOM, actions=before)
    assert text == "wait disk_unusable"
    assert detail == (
        "no space was left after its restart, too, though the watched disks have room, and were not"
        " seen without: a quota, or a disk that is not watched"
    )
    long_before = decided(tmp_path, WITH_ROOM, actions=before, without_room={"demo": NOW - 300})
    assert long_before[0] == "wait disk_unusable"


def test_a_second_end_on_a_watched_disk_that_has_room_again_is_restarted(tmp_path: Path) -> None:
    before, seen = (replace(ago(300, TRAINER), result="done"),), {"demo": NOW - 20}
    assert decided(tmp_path, WITH_ROOM, actions=before, without_room=seen)[0] == "act restart"
    assert decided(tmp_path, FULL, actions=before, without_room=seen)[0] == "wait disk_unusable"


@pytest.mark.parametrize(
    ("disk", "seen"),
    [
        (FULL, {"demo": NOW}),
        (replace(WITH_ROOM, checkpoints_left={"demo": 0.5}), {"demo": NOW}),
        (replace(WITH_ROOM, inodes=10_000_000.0, free_inodes=4.0), {"demo": NOW}),
        (WITH_ROOM, {}),
        (replace(FULL, path="/other", runs=frozenset({"second"})), {"second": NOW}),
    ],
)
def test_a_disk_without_room_is_remembered_of_the_runs_that_write_to_it(
    tmp_path: Path, disk: DiskState, seen: dict[str, float]
) -> None:
    shown = snapshot({TRAINER: ENDED})
    assert shown.exporter is not None
    shown = replace(shown, exporter=replace(shown.exporter, disks=(disk,)))
    config = make_config(tmp_path, *WORKERS)
    assert seen_without_room(state(config, snapshot=shown), NOW) == seen


def test_the_alert_that_blocks_restarts_shows_it_too(tmp_path: Path) -> None:
    """While it fires, the exporter is not asked about the run."""
    filling = {"alert": "TrainingDiskFilling", "worker": "", "last_received_at": NOW - 7}
    critical = incident(**filling, remediation="hold_restarts")
    config = make_config(tmp_path, *WORKERS)
    for one, seen in (
        (critical, {"demo": NOW - 7}),
        (replace(critical, resolved=True), {}),
        (replace(critical, remediation=""), {}),
        (replace(critical, alert="TrainingDiskReadOnly"), {}),
    ):
        assert seen_without_room(state(config, incidents=(one,), snapshot=None), NOW) == seen


def test_what_the_decision_rests_on_is_read_off_the_exporter() -> None:
    run, disk = 'run="demo"', 'path="/data/ck"'
    matched = "trainwarden_log_last_match_timestamp_seconds"
    page = (
        f'{PAGE}{matched}{{log="a",pattern="disk_full",{run}}} 7\n'
        f'{matched}{{log="a",pattern="errored",{run}}} 9\n'
        f'trainwarden_training_step{{{run},source="trainer"}} 40\n'
        f'trainwarden_checkpoint_size_bytes{{checkpoint="trainer",{run}}} 5\n'
        f"trainwarden_disk_free_bytes{{{disk}}} 1\n"
        f"trainwarden_disk_free_floor_bytes{{{disk}}} 3\n"
        f'trainwarden_disk_checkpoints_left{{checkpoint="a",{disk},{run}}} 0.5\n'
        f'trainwarden_disk_checkpoints_left{{checkpoint="b",{disk},{run}}} 2\n'
    )
    seen = parse_exporter_page(page.encode())
    assert (seen.runs["demo"].disk_full_at, seen.runs["demo"].checkpoint_bytes) == (7, 5)
    assert (seen.disks[0].free_floor, seen.disks[0].checkpoints_left) == (3, {"demo": 0.5})
