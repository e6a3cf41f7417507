"""What a resume begins from. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.autopsy.material import CheckpointFinding
from trainwarden_exporter.checkpoints.proofs import CheckpointProof, ProofState
from trainwarden_exporter.step_dirs.completeness import StepDir


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The newest checkpoint that is complete and, as far as known, neither damaged nor diverged."""

    checkpoint: StepDir | None
    step: int | None
    """The step from which a resume goes on: that of its record, else of the checkpoint."""
    finite_until: int | None = None
    """The last step with a finite loss, if something newer was saved after it."""
    state: ProofState = "unproved"
    """What reading the checkpoint has shown."""
    damaged: tuple[CheckpointProof, ...] = ()
    """Newer ones that are damaged, the newest first."""
    unclear: bool = False
    """Whether a checkpoint whose name holds no step may be from before the loss was NaN."""


def find_resume_point(found: CheckpointFinding, finite_until: int | None) -> ResumePoint:
    """Returns what a resume begins from, of `found`.

    What is of a later step than `finite_until`, or of an unknown one, is left out.
    """

    def is_good(step: int | None) -> bool:
        return finite_until is None or (step is not None and step <= finite_until)

    recovery = found.snapshot.recovery
    proofs = {(one.step_dir.name, one.step_dir.changed_at): one for one in found.proofs.checkpoints}
    damaged: list[CheckpointProof] = []
    good: StepDir | None = None
    state: ProofState = "unproved"
    newest = found.snapshot.result.newest
    left_out = newest is not None and not is_good(found.step(newest))
    for one in found.snapshot.result.complete:
        proof = proofs.get((one.name, one.changed_at))
        if not is_good(found.step(one)):
            continue
        if proof is not None and proof.state == "damaged":
            damaged.append(proof)
            continue
        good, state = one, "unproved" if proof is None else proof.state
        break
    step = None if good is None else found.step(good)
    if recovery is not None and recovery.is_complete:
        left_out = left_out or not is_good(recovery.step)
        sound = recovery.step not in [one.step for one in damaged]
        step = recovery.step if sound and is_good(recovery.step) else step
    unclear = finite_until is not None and step is None
    unclear = unclear and any(found.step(one) is None for one in found.snapshot.result.complete)
    until = finite_until if left_out else None
    return ResumePoint(good, step, until, state, tuple(damaged), unclear)
