"""One file per kind of action. An action changes the box; it never judges whether it should."""

from __future__ import annotations

from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.config import Budget, GpuCleanup, Setup, Target


def action_for(budget: Budget, setup: Setup) -> Action:
    """The means by which something is acted upon."""
    match budget:
        case Target():
            return ProcessAction(budget, setup.selectors)
        case GpuCleanup():
            return GpuCleanupAction(budget, setup.watched)
        case _:
            raise TypeError(f"nothing can be done to a {type(budget).__name__}")
