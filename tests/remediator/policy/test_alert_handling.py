"""Who acts on the alerts of what an operator has stopped, or started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import ROLLOUT, make_alert

from trainwarden_exporter.processes.announcements import AnnouncedWorker, Announcement
from trainwarden_exporter.runtime.responsibility import NOBODY, YOU
from trainwarden_remediator.policy.alert_handling import build_alert_views
from trainwarden_remediator.policy.situation import Situation


@pytest.mark.parametrize(
    ("name", "soon"),
    [
        ("TrainingStepStalled", "half a minute"),
        ("TrainingWorkerGone", "half a minute"),
        ("TrainingRemediationGaveUp", "two minutes"),
    ],
)
def test_an_alert_that_an_operator_ends_is_for_nobody(name: str, soon: str) -> None:
    alert = make_alert(alertname=name)
    stopped = Situation(alert.starts_at + 60, is_stopped=lambda *_: True)

    (view,) = build_alert_views((alert,), (), 0, stopped) or ()
    assert view.who == NOBODY
    assert view.handling == f"it was stopped: the alert ends within {soon}"

    (view,) = build_alert_views((alert,), (), 0, Situation(alert.starts_at + 60)) or ()
    assert "was stopped" not in view.handling

    changes: list[tuple[dict[str, Any], str]] = [
        ({}, NOBODY),
        ({"state": "failed"}, YOU),
        ({"announced_at": 0.0}, YOU),
    ]
    for change, who in changes:
        content = {"run": "demo", "worker": "rollout-0", "pid": 7}
        one = Announcement.model_validate(
            {**content, "announced_at": alert.starts_at + 1, **change}
        )
        announced = {one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)}
        known = Situation(alert.starts_at + 60, announced=announced, given_up=(ROLLOUT,))
        (view,) = build_alert_views((alert,), (), 0, known) or ()
        assert view.who == who
        again = f"it was started again: the alert ends within {soon}"
        assert (view.handling == again) == (who == NOBODY)
