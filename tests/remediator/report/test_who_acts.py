"""Who acts, at the head of a night's report: as on the status pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.report.test_now_section import STANDS, TRAINS, exporter, head, report
from tests.remediator.samples import (
    LATER,
    NOW,
    ROLLOUT,
    TRAINER,
    announced,
    make_alert,
    make_config,
    make_worker,
)

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Reason, Verdict
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import CurrentState

YOURS = "**Who acts: You, now.**"
STALL = make_alert(
    alertname="TrainingStepStalled", worker="", starts_at=NOW - 90, severity="critical"
)
GAVE_UP = make_alert(
    alertname="TrainingRemediationGaveUp",
    fingerprint=LATER,
    starts_at=NOW - 60,
    severity="critical",
    remediation="",
    worker="trainer",
)
STATE = CurrentState(
    exporter(TRAINS),
    [GAVE_UP],
    Situation(NOW, may_restart=[TRAINER, ROLLOUT], trainers=[TRAINER]),
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW - 60)


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db", clock=clock)
    yield opened
    opened.close()


def refuse(journal: Journal, folder: Path, reason: Reason) -> None:
    """The run hangs, and its trainer is not restarted."""
    journal.record_alerts([STALL])
    (incident,) = journal.open_incidents()
    (target,) = make_config(folder, "demo/trainer").targets
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, reason, target))])


NO_CHECKPOINT = "the remediator does not act: no complete checkpoint to resume from"


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("no_checkpoint", NO_CHECKPOINT),
        ("attempts_exhausted", "the remediator gave up on demo/trainer"),
    ],
)
def test_what_the_remediator_gave_up_is_yours_until_you_start_it(
    tmp_path: Path, journal: Journal, reason: Reason, why: str
) -> None:
    """The alert is about the trainer, the incident behind it about the whole run."""
    refuse(journal, tmp_path, reason)
    gave_up = "TrainingRemediationGaveUp (critical) on `demo/trainer`, since 07:59:00: **"
    assert f"{gave_up}You, now** ({why})" in report(tmp_path, STATE)
    started = replace(STATE, started={TRAINER: NOW + 1})
    assert f"{gave_up}Nobody needs to**" in report(tmp_path, started)


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("cause", ["", "waits for a queue"])
def test_a_hang_without_a_checkpoint_has_the_commands_that_end_and_start_it(
    tmp_path: Path, journal: Journal, cause: str, *, active: bool
) -> None:
    refuse(journal, tmp_path, "no_checkpoint")
    if cause:
        run = {"stuck": True, "waits": cause}
        journal.keep_evidence(1, None, "hold", json.dumps({"seen": {"runs": {"demo": run}}}))
    typed = announced(argv=("python", "a.py"), options=("--name", "demo"), cwd="/w")
    situation = replace(STATE.situation, without_checkpoints={"demo"})
    alerts = [STALL, GAVE_UP] if active else []
    state = CurrentState(exporter(STANDS), alerts, situation, announced=AnnouncedRuns(typed))
    todo = report(tmp_path, state).partition("## What to do\n\n")[2].partition("\n\n#")[0]
    assert (
        "`trainwarden stop demo` ends it. Mend the cause, then start it again with `--checkpoints "
        "FOLDER` added: `cd /w && trainwarden run --name demo -- python a.py`"
    ) in todo
    assert "an operator is needed" not in todo
    assert len(todo.splitlines()) == 1
    assert ("trainwarden stacks demo" in todo) == (not cause)


async def test_a_worker_that_is_gone_and_was_given_up_is_yours_before_its_alert(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    gone = replace(exporter(TRAINS), workers={TRAINER: make_worker(processes=0)})
    quiet = replace(STATE, exporter=gone, alerts=())
    assert "It restarts demo/trainer once its alert fires" in head(report(tmp_path, quiet))
    refuse(journal, tmp_path, "attempts_exhausted")
    await clock.advance(10)
    journal.record_alerts([replace(STALL, firing=False)])
    text = head(report(tmp_path, quiet))
    assert f"{YOURS} The remediator gave up on demo/trainer." in text


@pytest.mark.usefixtures("journal")
def test_of_several_faults_the_first_is_yours(tmp_path: Path) -> None:
    still = replace(STANDS, stall_limit=60)
    gone = replace(exporter(still), workers={ROLLOUT: make_worker(processes=0)})
    state = CurrentState(gone, (), Situation(NOW, may_restart=[ROLLOUT]))
    assert f"{YOURS} The remediator may not restart it." in head(report(tmp_path, state))


async def test_a_line_between_an_action_and_its_result_is_of_the_process_before(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    line = make_alert(
        alertname="TrainingTroubleLine",
        starts_at=NOW - 55,
        severity="warning",
        remediation="",
        worker="",
        log="trainer",
    )
    journal.record_alerts([make_alert(fingerprint=LATER, worker="trainer")])
    action = journal.record_intent(1, TRAINER, "restart", ())
    await clock.advance(10)
    journal.record_result(action, "done", started_by="us", processes=[1])
    state = replace(STATE, alerts=[line])
    assert "**Who acts: Nobody needs to.**" not in head(report(tmp_path, state))
    journal.record_outcome(action, "healed")
    journal.record_alerts([make_alert(fingerprint=LATER, worker="trainer", firing=False)])
    assert "**Who acts: Nobody needs to.** Its run has been started since" in head(
        report(tmp_path, state)
    )
