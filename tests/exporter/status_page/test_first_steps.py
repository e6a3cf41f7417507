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


def test_of_two_runs_with_one_alert_each_has_its_step() -> None:
    """The run of the headline comes first; its log is not that of the other run."""
    alerts = (
        firing("TrainingWorkerGone", "first", "Read first.log."),
        firing("TrainingTroubleLine", "first", ""),
        firing("TrainingWorkerGone", "second", "Read second.log."),
        firing("TrainingTroubleLine", "second", "Read the line."),
    )
    shown = RemediatorStatus(
        mode="act", tone="bad", verdict="", open_alerts=2, alerts=(), actions=(), firing=alerts
    )
    gone = {
        "first/trainer, TrainingWorkerGone": "Read first.log.",
        "second/trainer, TrainingWorkerGone": "Read second.log.",
        "second/trainer, TrainingTroubleLine": "Read the line.",
    }
    assert {one.label: one.step for one in first_steps(shown)} == gone
    about_second = [one.label for one in first_steps(shown, "second")]
    assert about_second == [*list(gone)[1:], next(iter(gone))]
    name, _ = first_steps(shown)[0].as_html
    assert name.startswith("first/trainer, <a href=")
