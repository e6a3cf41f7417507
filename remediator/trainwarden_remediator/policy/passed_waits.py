"""Whether the wait that an alert reports has passed, as its run makes steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden_exporter.runtime.responsibility import NOBODY, STALL
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.situation import Situation

WAITING = "TrainingWaitingForRollouts"

SCRAPE_SECONDS = 15.0
"""How old the scrape may be by which an alert begins."""
HEALED_SECONDS = 120.0
"""How long after the healing of a worker a wait of its run is a consequence of that fault."""


def last_steps(exporter: ExporterState) -> Mapping[str, float]:
    """Returns when each run that goes on has made its last step (Unix seconds)."""
    return {
        name: run.last_step_at
        for name, run in exporter.runs.items()
        if run.last_step_at is not None and not run.finished
    }


def passed_wait(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns that nobody acts on a stall or a wait for rollouts that ends, and why, else None.

    A step ends it, and a wait for rollouts also the first batch after a worker of the run was
    healed.
    """
    stalls = alert.name == STALL and alert.run not in situation.halted
    waits = alert.name == WAITING
    began = alert.starts_at - (SCRAPE_SECONDS if waits else 0.0)
    if (stalls or waits) and situation.last_steps.get(alert.run, 0.0) > began:
        return NOBODY, "its run has made a step since: the alert ends within half a minute"
    for action in reversed(situation.actions if waits else ()):
        ended = action.ended_at
        healed = action.healed and ended is not None and situation.now - ended < HEALED_SECONDS
        if healed and action.key.run == alert.run and alert.labels.get("cause") == "slow":
            return NOBODY, f"{'/'.join(action.key)} was healed: the alert ends within two minutes"
    return None
