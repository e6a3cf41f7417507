"""The background pollers of each kind of checkpoint: its scans, and its proofs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trainwarden_exporter.checkpoints.proofs import ProofSnapshot
from trainwarden_exporter.checkpoints.prover import INTERVAL as PROVER_INTERVAL
from trainwarden_exporter.checkpoints.prover import CheckpointProver, open_proofs
from trainwarden_exporter.checkpoints.scanner import INTERVAL, CheckpointScanner, CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.locations import InstanceFinder

Scans = BackgroundPollers[CheckpointSpec, CheckpointSnapshot]
Proofs = BackgroundPollers[CheckpointSpec, ProofSnapshot]


def make_pollers(
    specs: Sequence[CheckpointSpec],
    state_folder: Path | None,
    now: Callable[[], float],
    filesystem: FileSystem | None = None,
) -> tuple[Scans, Proofs]:
    """Returns the pollers that scan, and the pollers that prove; kinds in one place share a finder.

    The proofs are kept in `state_folder`.
    """
    finders = {spec.location: InstanceFinder(spec.location) for spec in specs}
    scans = BackgroundPollers(
        {spec: _scan_poller(spec, finders[spec.location], filesystem, now) for spec in specs}
    )
    proofs = BackgroundPollers(
        {spec: _proof_poller(spec, poller, state_folder, now) for spec, poller in scans.all()}
    )
    return scans, proofs


def _scan_poller(
    spec: CheckpointSpec,
    finder: InstanceFinder,
    filesystem: FileSystem | None,
    now: Callable[[], float],
) -> BackgroundPoller[CheckpointSnapshot]:
    """Returns a poller that scans the folders of `spec`."""
    scanner = CheckpointScanner(spec, finder=finder, filesystem=filesystem, now=now)
    return BackgroundPoller(spec.title, scanner, interval=INTERVAL, now=now)


def _proof_poller(
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
