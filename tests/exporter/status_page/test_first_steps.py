"""What an operator does first, of several alerts."""

from __future__ import annotations

from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_exporter.status_page.remediator import first_steps
from trainwarden_exporter.status_page.remediator_client import FiringAlert, RemediatorStatus
from trainwarden_exporter.webserver.runbooks import first_step


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


def test_the_step_of_a_loss_that_is_not_finite_has_the_number_itself() -> None:
    alert = "TrainingNotFinite"
    own = (firing(alert, "first", first_step(alert, {"run": "first"})),)
    shown = RemediatorStatus(
        mode="act", tone="bad", verdict="", open_alerts=0, alerts=(), actions=(), firing=own
    )
    (known,) = first_steps(shown, sound={"first": (1039.0, "/out/step_60.pt")})
    assert known.step == (
        "Stop it: `trainwarden stop first`. Then resume from a checkpoint no later than step 1,039,"
        " not from the newest: `trainwarden checkpoints first` names the newest proved one. That is"
        " `/out/step_60.pt`."
    )
    (none,) = first_steps(shown, sound={"first": (1039.0, None)})
    assert none.step == (
        "Stop it: `trainwarden stop first`. No complete checkpoint of it is known: it begins at"
        " step 0."
    )
    (unknown,) = first_steps(shown, sound={"first": (None, "")})
    assert "no later than the last finite value, not from the newest" in unknown.step
    assert unknown.step.endswith("names the newest proved one, if known.")
