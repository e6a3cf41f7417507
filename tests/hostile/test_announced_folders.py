"""An account announces runs to an exporter of root, with folders of root as theirs."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path

import pytest
from tests.hostile.accounts import OPERATOR, STRANGER, needs_root, open_folder
from tests.hostile.test_log_links import link

from trainwarden_exporter.checkpoints.paced_reader import UnlimitedRate
from trainwarden_exporter.checkpoints.prover import CheckpointProver
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.config import Config, with_announced
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.progress.progress_files import ProgressFileScanner
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.rollouts.scanner import RolloutScanner
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import (
    checkpoint_specs,
    log_specs,
    progress_spec,
    rollout_specs,
)
from trainwarden_exporter.runtime.account_access import granted, reading_for
from trainwarden_exporter.runtime.safe_open import file_status, open_handle, scan_folder
from trainwarden_exporter.step_dirs.locations import InstanceFinder

pytestmark = needs_root

SECRET = "step_4242"


@pytest.fixture
def secret() -> Iterator[Path]:
    """The folder of a run of root, in a folder that only root can enter."""
    with open_folder() as folder:
        closed = folder / "closed"
        fill(closed / "run")
        closed.chmod(0o700)
        yield closed / "run"


@pytest.fixture
def home() -> Iterator[Path]:
    """The folder of an account that announces runs in its `runs.d`."""
    with open_folder(OPERATOR) as folder:
        for name in ("runs.d", "run"):
            (folder / name).mkdir()
            os.chown(folder / name, OPERATOR, OPERATOR)
        yield folder


def fill(folder: Path, owner: int = 0) -> None:
    """Writes what a run of TRL, a run of prime-rl and any other leave in their folder."""
    for inner in ("checkpoint-4242", "weights/step_4242", "rollouts/step_4242", "logs"):
        (folder / inner).mkdir(parents=True)
    content = {
        "checkpoint-4242/trainer_state.json": '{"global_step": 4242, "max_steps": 5000}',
        "checkpoint-4242/model.safetensors": "x",
        "logs/trainer.log": "Step 4242 | Time: 1.00s | Loss: 0.5\n",
    }
    for name, text in content.items():
        (folder / name).write_text(text)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner, owner)
        os.utime(path, (time.time() - 300,) * 2)


def announce(home: Path, **content: object) -> RunConfig:
    """Announces a run as the account itself does; returns the run of root's exporter."""
    file = home / "runs.d" / "demo@trainer.json"
    text = json.dumps({"run": "demo", "worker": "trainer", "pid": 7, **content}, default=str)
    subprocess.run(
        [
            *("setpriv", f"--reuid={OPERATOR}", f"--regid={OPERATOR}", "--clear-groups"),
            *("sh", "-c", 'umask 077; cat > "$1"', "sh", str(file)),
        ],
        input=text.encode(),
        check=True,
    )
    config, problems = with_announced(Config(), read_announcements(home / "runs.d", time.time()))
    assert problems == ()
    (run,) = config.runs
    return run


def seen(run: RunConfig) -> str:
    """Returns all that the collectors find in the folders of `run`, errors as well."""
    found: list[object] = []

    def record(read: Callable[[], object]) -> None:
        try:
            found.append(read())
        except OSError as error:
            found.append(error.strerror)

    for spec in checkpoint_specs(run):
        scanner = CheckpointScanner(spec)
        record(scanner)
        with suppress(OSError):
            snapshot = scanner()
            prover = CheckpointProver(spec, partial(copy, snapshot), rate=UnlimitedRate())
            record(prover)
    for rollout in rollout_specs(run):
        assert rollout.layout is not None
        record(RolloutScanner(InstanceFinder(rollout.location), rollout.layout))
    progress = progress_spec(run)
    for subject in progress.files:
        record(ProgressFileScanner(subject))
    for log in log_specs(run):
        record(LogFollower(log).poll)
    collector = ProgressCollector([progress], ProgressTracker([progress]))
    found += [family.samples for family in collector.collect() if "path_exists" in family.name]
    return repr(found)


@pytest.mark.parametrize("framework", ["generic", "trl", "prime_rl"])
def test_a_closed_folder_of_root_shows_nothing(home: Path, secret: Path, framework: str) -> None:
    run = announce(home, path=secret, checkpoints=secret / "weights", framework=framework)
    shown = seen(run)
    assert "4242" not in shown
    assert "value=True" not in shown  # not even whether it exists
    assert "LogSnapshot(files=1" not in shown


@pytest.mark.parametrize("framework", ["trl", "prime_rl"])
def test_a_folder_that_the_account_may_read_is_shown(home: Path, framework: str) -> None:
    shutil.rmtree(home / "run")
    fill(home / "run", OPERATOR)
    run = announce(home, path=home / "run", framework=framework)
    shown = seen(run)
    assert "4242" in shown
    assert "value=True" in shown
    assert "LogSnapshot(files=1" in shown


def test_a_link_of_the_account_to_a_closed_folder_shows_nothing(home: Path, secret: Path) -> None:
    for name in ("checkpoint-4242", "weights", "logs"):
        link(home / "run" / name, secret / name)
    link(home / "outer", secret)
    for framework in ("trl", "prime_rl"):
        shown = seen(announce(home, path=home / "run", framework=framework))
        assert "global_step" not in shown
        assert SECRET not in shown
        assert "total=5000" not in shown
    assert SECRET not in seen(announce(home, checkpoints=home / "outer" / "weights"))


def test_a_run_of_the_file_shows_what_root_may_read(home: Path, secret: Path) -> None:
    given = {"name": "demo", "user": str(OPERATOR), "path": str(secret), "framework": "trl"}
    announce(home, checkpoints=secret / "weights")
    config, _ = with_announced(
        Config.model_validate({"runs": [given]}),
        read_announcements(home / "runs.d", time.time()),
    )
    own, announced = checkpoint_specs(config.runs[0])[0], checkpoint_specs(config.runs[0])[-1]
    assert "checkpoint-4242" in repr(CheckpointScanner(own)())
    with pytest.raises(PermissionError):
        CheckpointScanner(announced)()


def test_no_modes_of_proc_are_believed() -> None:
    with reading_for(STRANGER), pytest.raises(PermissionError):
        file_status("/proc/1/stat")


def test_a_folder_that_may_be_entered_but_not_listed_is_not_listed(secret: Path) -> None:
    secret.parent.chmod(0o711)
    with reading_for(STRANGER):
        assert file_status(secret).st_mode
        with pytest.raises(PermissionError), scan_folder(secret.parent):
            pass


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(0x02, 0, STRANGER)], 0),  # others may read, and it may not
        ([(0x02, 5, STRANGER)], 5),
        ([(0x08, 4, OPERATOR)], 0),  # a group without it
        ([], 0),
    ],
)
def test_an_acl_counts_as_for_the_kernel(
    secret: Path, entries: list[tuple[int, int, int]], expected: int
) -> None:
    other = 5 if entries[:1] == [(0x02, 0, STRANGER)] else 0
    acl = [(0x01, 7, -1), *entries, (0x04, 0, -1), (0x10, 7, -1), (0x20, other, -1)]
    acl.sort(key=lambda entry: (entry[0], entry[2]))
    content = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, bits, number & 0xFFFFFFFF) for tag, bits, number in acl
    )
    try:
        os.setxattr(secret.parent, "system.posix_acl_access", content)
    except OSError as error:
        pytest.skip(f"no ACL here: {error}")
    handle = open_handle(secret.parent)
    try:
        assert granted(handle, os.fstat(handle), STRANGER) == expected
    finally:
        os.close(handle)
    is_listed = (
        subprocess.run(
            [
                "setpriv",
                f"--reuid={STRANGER}",
                f"--regid={STRANGER}",
                "--clear-groups",
                "ls",
                secret.parent,
            ],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
    assert is_listed == bool(expected & 4)
