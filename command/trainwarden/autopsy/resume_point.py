"""What a resume begins from. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.autopsy.gather import CheckpointFinding
from trainwarden_exporter.step_dirs.completeness import StepDir


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The newest good checkpoint: complete, and not known to be of a loss that is not finite."""

    checkpoint: StepDir | None
    step: int | None
    """The step from which a resume goes on: that of its record, else of the checkpoint."""
    finite_until: int | None = None
    """The last step with a finite loss, if something newer was saved after it."""


def find_resume_point(found: CheckpointFinding, finite_until: int | None) -> ResumePoint:
    """Returns what a resume begins from, of `found`.

    What is of a later step than `finite_until`, or of an unknown one, is left out.
    """

    def is_good(step: int | None) -> bool:
        return finite_until is None or (step is not None and step <= finite_until)

    offset, recovery = found.spec.layout.step_offset, found.snapshot.recovery
    complete = found.snapshot.result.complete
    good = next((one for one in complete if is_good(one.step(offset))), None)
    step = None if good is None else good.step(offset)
    left_out = good is not found.snapshot.result.newest
    if recovery is not None and recovery.is_complete:
        left_out = left_out or not is_good(recovery.step)
        step = recovery.step if is_good(recovery.step) else step
    return ResumePoint(good, step, finite_until if left_out else None)
