"""One file per kind of action. An action changes the box; it never judges whether it should."""

from __future__ import annotations

from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.config import Setup, Target


def action_for(target: Target, setup: Setup) -> Action:
    """The means by which `target` is restarted."""
    return ProcessAction(target, setup.selectors)
