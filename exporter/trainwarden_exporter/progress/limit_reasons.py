"""Explains where the limits of a run's phases come from. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden_exporter.frameworks.base import Framework
from trainwarden_exporter.progress.config import ProgressConfig


def explain_phase_limits(config: ProgressConfig, framework: Framework) -> Iterator[str]:
    """Yields one line per phase: its limit in force, and who set it."""
    reasons = {limit.phase: limit.reason for limit in framework.phase_limits}
    for phase, seconds in config.limits(framework.phase_limits).phases.items():
        if phase.value in config.phase_limits.model_fields_set:
            reason = "configured"
            if phase in reasons:
                reason += f"; {reasons[phase]}"
        else:
            reason = reasons.get(phase, "default")
        yield f"{phase}: at most {seconds:g} s ({reason})"
