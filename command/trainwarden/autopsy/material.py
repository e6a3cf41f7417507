"""What was read of a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainwarden.autopsy.announced import AnnouncedWorker
from trainwarden.autopsy.files import FolderFiles
from trainwarden.autopsy.journals import Action
from trainwarden.autopsy.model import LogReading
from trainwarden_exporter.checkpoints.proofs import ProofSnapshot
from trainwarden_exporter.checkpoints.scanner import CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.frameworks.base import Framework
from trainwarden_exporter.rollouts.scanner import RolloutSnapshot
from trainwarden_exporter.rollouts.specs import RolloutSpec
from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_exporter.step_dirs.names import counts_epochs, number_unit


@dataclass(frozen=True, slots=True)
class CheckpointFinding:
    """The checkpoints of one kind."""

    spec: CheckpointSpec
    snapshot: CheckpointSnapshot
    proofs: ProofSnapshot = field(default_factory=ProofSnapshot)

    def step(self, one: StepDir) -> int | None:
        """Returns the step of a checkpoint in the run's numbering; None if its name has none."""
        return None if counts_epochs(one.name.text) else one.step(self.spec.layout.step_offset)

    def number(self, one: StepDir) -> str:
        """Returns `step 300`, or `epoch 7`; "" without a number."""
        found = one.step(self.spec.layout.step_offset)
        return "" if found is None else f"{number_unit(one.name.text)} {found}"


@dataclass(frozen=True, slots=True)
class RolloutFinding:
    """The rollouts of one kind."""

    spec: RolloutSpec
    snapshot: RolloutSnapshot


@dataclass(frozen=True, slots=True)
class Material:
    """All that was read."""

    folder: Path
    now: float
    files: FolderFiles
    framework: Framework
    config_text: str
    """An exporter.yml for the run, as far as its files show it."""
    run: str
    logs: tuple[LogReading, ...] = ()
    checkpoints: tuple[CheckpointFinding, ...] = ()
    rollouts: tuple[RolloutFinding, ...] = ()
    unread: tuple[str, ...] = ()
    booted_at: float | None = None
    """Boot of this host, on which the run may not have been."""
    announced: tuple[AnnouncedWorker, ...] = ()
    """What `trainwarden run` recorded, if it started the run."""
    other_runs: tuple[AnnouncedWorker, ...] = ()
    """One worker of each other run that belongs to the folder; none of their files are read."""
    actions: tuple[Action, ...] = ()
    """What a remediator did to the run since an operator started it."""
