"""The background pollers of one kind of checkpoint: its scans, and its proofs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainwarden_exporter.checkpoints.proofs import ProofSnapshot
from trainwarden_exporter.checkpoints.prover import INTERVAL as PROVER_INTERVAL
from trainwarden_exporter.checkpoints.prover import CheckpointProver, open_proofs
from trainwarden_exporter.checkpoints.scanner import INTERVAL, CheckpointScanner, CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.runtime.background_poller import BackgroundPoller
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.locations import InstanceFinder


def scan_poller(
    spec: CheckpointSpec,
    finder: InstanceFinder,
    filesystem: FileSystem | None,
    now: Callable[[], float],
) -> BackgroundPoller[CheckpointSnapshot]:
    """Returns a poller that scans the folders of `spec`."""
    scanner = CheckpointScanner(spec, finder=finder, filesystem=filesystem, now=now)
    return BackgroundPoller(spec.title, scanner, interval=INTERVAL, now=now)


def proof_poller(
    spec: CheckpointSpec,
    scans: BackgroundPoller[CheckpointSnapshot],
    state_folder: Path | None,
    now: Callable[[], float],
) -> BackgroundPoller[ProofSnapshot]:
    """Returns a poller that proves what `scans` has found, and keeps that in `state_folder`."""

    def last_scan() -> CheckpointSnapshot | None:
        return None if scans.last_result is None else scans.last_result.value

    prover = CheckpointProver(spec, last_scan, state=open_proofs(state_folder, spec), now=now)
    return BackgroundPoller(f"proofs of {spec.title}", prover, interval=PROVER_INTERVAL, now=now)
