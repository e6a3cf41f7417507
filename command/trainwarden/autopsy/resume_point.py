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
    """The last step with a finite loss, if that is known and something was saved after it."""
    state: ProofState = "unproved"
    """What reading the checkpoint has shown."""
    damaged: tuple[CheckpointProof, ...] = ()
    """Newer ones that are damaged, the newest first."""
    unclear: bool = False
    """Whether a checkpoint may be from before the loss was NaN, and which is not known."""


def find_resume_point(
    found: CheckpointFinding, finite_until: int | None, *, diverged: bool
) -> ResumePoint:
    """Returns what a resume begins from, of `found`.

    Of a run that has `diverged`, what is not known to be of `finite_until` or an earlier step is
    left out.
    """

    def is_good(step: int | None) -> bool:
        until = finite_until
        return not diverged or (step is not None and until is not None and step <= until)

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
    steps = [found.step(one) for one in found.snapshot.result.complete]
    unclear = diverged and step is None and bool(steps) and (finite_until is None or None in steps)
    until = finite_until if left_out else None
    return ResumePoint(good, step, until, state, tuple(damaged), unclear)
