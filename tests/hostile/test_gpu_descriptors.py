"""Another account passes an open device file of a GPU to services of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hostile.accounts import STRANGER, needs_root, open_folder, started
from tests.waiting import until

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.gpu.snapshot import GpuSnapshot, take_gpu_snapshot
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.config.targets import GpuCleanup

pytestmark = needs_root

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def devices() -> Iterator[Path]:
    with open_folder() as folder:
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            (folder / name).touch()
            (folder / name).chmod(0o666)
        yield folder


def run_of(user: int) -> RunConfig:
    """A run without running workers."""
    worker = {"name": "trainer", "match": {"command": "no-such-trainer", "user": str(user)}}
    return RunConfig.model_validate({"name": "demo", "workers": [worker]})


def snapshot(devices: Path, *runs: RunConfig) -> GpuSnapshot:
    return take_gpu_snapshot(GpuConfig(device_root=devices), runs)


@contextmanager
def holder(devices: Path, uid: int) -> Iterator[int]:
    """A process of the account `uid` that holds a GPU; its pid."""
    files = f"3<{devices / 'nvidia0'} 4<{devices / 'nvidia-uvm'}"
    command = ["sh", "-c", f"exec {files}; sleep 600; :", f"--token={SECRET}"]
    with started(command, uid, program="/bin/sh") as child:
        until(lambda: Path(f"/proc/{child.pid}/fd/4").exists())
        yield child.pid


def test_the_leftover_of_another_account_is_reported_and_not_terminated(devices: Path) -> None:
    config = ExporterConfig(gpu=GpuConfig(device_root=devices), runs=(run_of(0),))
    with holder(devices, STRANGER) as stranger, holder(devices, 0) as own:
        action = GpuCleanupAction(GpuCleanup(min_age=0), config)
        spared, chosen = action.select()
        assert stranger in {one.process.pid for one in spared}
        chosen_pids = {one.process.pid for one in chosen}
        assert own in chosen_pids
        assert stranger not in chosen_pids
        named = GpuCleanupAction(GpuCleanup(min_age=0, owners=(str(STRANGER),)), config)
        assert stranger in {one.process.pid for one in named.select()[1]}


def test_secrets_in_the_command_lines_of_strangers_are_redacted(devices: Path) -> None:
    with holder(devices, STRANGER) as stranger:
        holders = {one.process.pid: one for one in snapshot(devices).survey.orphans}
        assert "--token=[redacted]" in holders[stranger].command
        assert SECRET not in str(holders)


@pytest.mark.parametrize(("user", "shown"), [(0, False), (STRANGER, True)])
def test_arguments_are_shown_only_of_the_accounts_of_the_runs(
    devices: Path, user: int, *, shown: bool
) -> None:
    with holder(devices, STRANGER) as pid:
        found = {one.process.pid: one for one in snapshot(devices, run_of(user)).survey.orphans}
        assert ("--token=" in found[pid].shown) is shown
