"""What an operator does first, of several alerts."""

from __future__ import annotations

from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_exporter.status_page.remediator import first_steps
from trainwarden_exporter.status_page.remediator_client import FiringAlert, RemediatorStatus


def firing(alert: str, run: str, step: str) -> FiringAlert:
    return FiringAlert(
        alert=alert,
        run=run,
        worker="trainer",
        since=1.0,
        tone="bad",
        who_acts=YOU,
        handling="",
        first_step=step,
    )


def test_of_two_runs_with_one_alert_the_step_is_for_that_of_the_headline() -> None:
    """The most urgent comes first; its log is not that of the other run."""
    alerts = (
        firing("TrainingWorkerGone", "first", "Read first.log."),
        firing("TrainingTroubleLine", "first", ""),
        firing("TrainingWorkerGone", "second", "Read second.log."),
        firing("TrainingTroubleLine", "second", "Read the line."),
    )
    shown = RemediatorStatus(
        mode="act", tone="bad", verdict="", open_alerts=2, alerts=(), actions=(), firing=alerts
    )
    assert first_steps(shown) == {
        "TrainingWorkerGone": "Read first.log.",
        "TrainingTroubleLine": "Read the line.",
    }
