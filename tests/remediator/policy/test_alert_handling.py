"""Who acts on the alerts of what an operator has stopped."""

from __future__ import annotations

import pytest
from tests.remediator.samples import make_alert

from trainwarden_exporter.runtime.responsibility import NOBODY
from trainwarden_remediator.policy.alert_handling import Situation, build_alert_views


@pytest.mark.parametrize(
    ("name", "soon"),
    [
        ("TrainingStepStalled", "half a minute"),
        ("TrainingWorkerGone", "half a minute"),
        ("TrainingRemediationGaveUp", "two minutes"),
    ],
)
def test_nobody_acts_on_what_ends_with_a_stopped_run(name: str, soon: str) -> None:
    alert = make_alert(alertname=name)
    stopped = Situation(alert.starts_at + 60, is_stopped=lambda *_: True)

    (view,) = build_alert_views((alert,), (), 0, stopped) or ()
    assert view.who == NOBODY
    assert view.handling == f"it was stopped: the alert ends within {soon}"

    (view,) = build_alert_views((alert,), (), 0, Situation(alert.starts_at + 60)) or ()
    assert "was stopped" not in view.handling
