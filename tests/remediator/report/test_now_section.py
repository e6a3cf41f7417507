"""The head of a night's report: the state now, what repeats, and what to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.live_host import Box
from tests.remediator.notify.test_recurring import heal
from tests.remediator.samples import LATER, NOW, ROLLOUT, TRAINER, make_alert, make_worker
from tests.remediator.telemetry.test_headline_states import staged

from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import (
    NOBODY,
    NOT_FINITE_HANDLING,
    NOTHING_YET,
    REMEDIATOR,
    STALLED,
    YOU,
    as_sentence,
)
from trainwarden_exporter.status_page.remediator_client import RemediatorStatus
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import (
    CurrentState,
    describe_unread,
    mode_in_force,
    read_current_state,
    running_remediator,
)
from trainwarden_remediator.report.host_now import stands_still
from trainwarden_remediator.report.incident import ReportStyle
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.nightly import report_nights
from trainwarden_remediator.runtime.clock import WallClock

STYLE = ReportStyle(TimeFormat(UTC))
TRAINS = RunState(
    step=382, last_step_at=NOW - 2, usual_step_seconds=1, phase="training", stall_limit=1800
)
STANDS = replace(TRAINS, last_step_at=NOW - 517, phase="waiting_for_rollouts")
HANGS_AGAIN = RunState(
    step=41,
    progress_at=NOW - 517,
    stall_limit=1800,
    phase="training",
    trainer_processes=1,
    stuck=True,
    waits="process 7 of trainer waits for a lock at a.py:1",
)
"""Nobody knows when it has made its step."""
LOOP = (
    "4 of the last 5 attempts ended at step 57 ± 1 after about 20 s: another restart is unlikely "
    "to help"
)
OOM = make_alert(
    fingerprint=LATER,
    starts_at=NOW - 700,
    alertname="TrainingOomKill",
    severity="warning",
    run="",
    worker="",
    remediation="",
)


def exporter(run: RunState) -> ExporterState:
    healthy = make_worker(memory_bytes=1)
    return ExporterState({ROLLOUT: healthy}, 2e10, 2e9, runs={"demo": run})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db", clock=FakeClock(NOW))
    yield opened
    opened.close()


def report(tmp_path: Path, current: CurrentState) -> str:
    return report_nights(tmp_path / "journal.db", NOW - 86400, STYLE, NOW, current)


def gave_up(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, "attempts_exhausted"))])


@pytest.mark.parametrize("alerts", [0, 2])
def test_a_run_that_an_operator_has_halted_is_left_alone(
    tmp_path: Path, journal: Journal, alerts: int
) -> None:
    run = replace(STANDS, stall_limit=300, at_prompt=True, waits="process 7 of trainer waits")
    names = ("TrainingStepStalled", "TrainingCheckpointOverdue")
    quiet: dict[str, Any] = {"severity": "warning", "remediation": "", "worker": ""}
    firing = [
        make_alert(alertname=name, fingerprint=key * 16, **quiet)
        for key, name in zip("12", names, strict=True)
    ]
    situation = Situation(NOW, may_restart=[TRAINER], trainers=[TRAINER])
    assert journal.open_incidents() == ()
    whole = report(tmp_path, CurrentState(exporter(run), firing[:alerts], situation))
    left = "the remediator leaves it alone: it waits for you at a prompt"
    assert f"**Who acts: You, now.** {left[:1].upper()}{left[1:]}." in whole
    assert whole.count(f"**You, now** ({left})") == alerts
    todo = whole.partition("## What to do\n\n")[2].partition("\n\n#")[0].strip()
    assert todo == "- `demo`: it waits for you at a prompt."


def test_of_many_runs_the_ones_that_need_you_open_the_report(
    tmp_path: Path, journal: Journal
) -> None:
    runs = dict.fromkeys(("a", "b", "demo", "hung"), TRAINS)
    runs["hung"] = replace(STANDS, stall_limit=300, stuck=True)
    quiet: dict[str, Any] = {"remediation": "", "worker": ""}
    nan = make_alert(alertname="TrainingNotFinite", severity="critical", **quiet)
    assert journal.open_incidents() == ()
    state = ExporterState({}, 2e10, 2e9, runs=runs)
    trainer = WorkerKey("hung", "trainer")
    situation = Situation(NOW, may_restart=[trainer], trainers=[trainer])
    found = CurrentState(state, [nan], situation)
    whole = report(tmp_path, found)
    assert whole.startswith(
        "# 4 runs: 2 are well, 1 is being healed or held, 1 needs you: demo.\n\n"
        "In the last 24 h, there was no incident.\n\n**Who acts: You, now.**"
    )


def head(whole: str) -> str:
    """The report before its first night."""
    return whole.partition("\n# ")[0]


@pytest.mark.usefixtures("journal")
def test_a_run_that_stands_still_is_the_first_line_of_a_quiet_night(tmp_path: Path) -> None:
    text = report(tmp_path, CurrentState(exporter(STANDS), ()))
    first = next(line for line in text.splitlines() if line.startswith("- "))
    assert first == (
        "- **`demo` stands still, step 382 since 07:51:23, for 8 min 37 s** (usually 1 s), "
        "phase waiting for rollouts."
    )
    assert "# No incident" in text
    stuck = replace(STANDS, stuck=True, waits="process 7 of trainer waits for a queue at a.py:1")
    text = report(tmp_path, CurrentState(exporter(stuck), ()))
    assert ", for 8 min 37 s: process 7 of trainer waits for a queue at a.py:1**" in text


@pytest.mark.usefixtures("journal")
def test_a_run_that_is_stuck_stands_still_though_the_time_of_its_step_is_unknown(
    tmp_path: Path,
) -> None:
    text = report(tmp_path, CurrentState(exporter(HANGS_AGAIN), ()))
    since = "**`demo` stands still, step 41 since 07:51:23, for 8 min 37 s: process 7 of trainer"
    assert f"- {since} waits for a lock at a.py:1**, phase training." in text
    text = report(tmp_path, CurrentState(exporter(replace(HANGS_AGAIN, stuck=False)), ()))
    assert "- `demo`: step 41, made at an unknown time, phase training." in text


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize(
    ("limit", "mode", "may_restart", "who"),
    [
        (1800, "act", True, f"{NOBODY}.** {NOTHING_YET}"),
        (60, "act", True, f"{REMEDIATOR}.** It {STALLED}."),
        (60, "observe", True, f"{YOU}.** The remediator only observes."),
        (60, "act", False, f"{YOU}.** The remediator may not restart it."),
    ],
)
def test_who_acts_on_a_standstill_before_its_alert(
    tmp_path: Path, limit: float, mode: str, may_restart: bool, who: str
) -> None:
    shown = exporter(replace(STANDS, stall_limit=limit))
    keys = [ROLLOUT] if may_restart else []
    situation = Situation(NOW, mode, may_restart=keys, trainers=[ROLLOUT])
    informs = make_alert(severity="info", remediation="")
    for alerts in ((), (informs,)):
        text = report(tmp_path, CurrentState(shown, alerts, situation))
        assert f"**Who acts: {who}\n" in text
        # What to do agrees with who acts.
        assert ("- Find out why `demo` stands still: " in head(text)) == who.startswith(YOU)
        assert ("Nothing now." in head(text)) != who.startswith(YOU)


def test_a_report_covers_no_more_than_the_life_of_its_journal(
    tmp_path: Path, journal: Journal
) -> None:
    """The faults before may be in the journal of another stack."""
    quiet = CurrentState(exporter(TRAINS), ())
    assert ". In the last 24 h, there was no incident." in report(tmp_path, quiet)
    with journal.file.transaction() as db:
        db.execute("UPDATE journal SET created = ?", (NOW - 600,))
    begin = STYLE.times.full(NOW - 600)
    text = report(tmp_path, quiet)
    assert f". Since {begin}, when the journal of this stack begins, there was no incident." in text
    assert text.endswith(f"# No incident\n\nNone since {begin}.\n")
    gave_up(journal)
    assert "stack begins, 1 fault; it needs you." in report(tmp_path, quiet)


def test_a_journal_of_an_earlier_version_has_no_time_of_its_creation(
    tmp_path: Path, journal: Journal
) -> None:
    with journal.file.transaction() as db:
        db.execute("ALTER TABLE journal DROP COLUMN created")
    quiet = CurrentState(exporter(TRAINS), ())
    assert ". In the last 24 h, there was no incident." in report(tmp_path, quiet)


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize(("until", "late"), [(300, True), (380, False)])
def test_a_checkpoint_from_after_a_loss_that_is_not_finite_is_marked(
    tmp_path: Path, until: int, *, late: bool
) -> None:
    values = {("trainer", "loss"): until, ("trainer", "kl"): 3}
    run = replace(TRAINS, checkpoint=380, finite_until=values)
    text = head(report(tmp_path, CurrentState(exporter(run), ())))
    saved = "newest complete checkpoint: step 380"
    marked = f"{saved}, **after step 300, the last with a finite loss**." in text
    assert (saved in text, marked) == (True, late)
    run = replace(run, proved_checkpoint="/r/epoch-380.pt")
    text = head(report(tmp_path, CurrentState(exporter(run), ())))
    assert "newest complete checkpoint: epoch 380" in text


@pytest.mark.usefixtures("journal")
def test_a_loss_of_nan_is_yours_before_its_alert_and_named_once_beside_it(tmp_path: Path) -> None:
    run = replace(TRAINS, checkpoint=380, finite_until={("trainer", "loss"): 300})
    alert = make_alert(
        alertname="TrainingNotFinite", severity="critical", worker="", remediation=""
    )
    yours = f"**Who acts: {YOU}.** {as_sentence(YOU, NOT_FINITE_HANDLING)}"
    early = head(report(tmp_path, CurrentState(exporter(run), ())))
    assert yours in early
    assert f"- `demo`: {NOT_FINITE_HANDLING}." in early
    late = head(report(tmp_path, CurrentState(exporter(run), [alert])))
    assert f"Who acts: {YOU}" in late
    assert NOT_FINITE_HANDLING not in late.partition("## What to do")[2]
    for sound in (replace(run, checkpoint=300), replace(run, finite_until={}), TRAINS):
        assert yours not in report(tmp_path, CurrentState(exporter(sound), ()))


@pytest.mark.usefixtures("journal")
def test_what_to_do_about_a_nan_has_the_last_step_with_a_finite_loss(tmp_path: Path) -> None:
    alert = make_alert(
        alertname="TrainingNotFinite", severity="critical", worker="", remediation=""
    )
    run = replace(TRAINS, finite_until={("trainer", "loss"): 39.0}, proved_checkpoint="/out/30.pt")
    for proved, unread, is_named in (
        (30.0, None, True),
        (30.0, 40.0, True),
        (20.0, 30.0, False),  # the newer one may be sound
        (40.0, None, False),
        (None, None, False),
    ):
        known = replace(run, proved_step=proved, unproved_step=unread)
        state = CurrentState(exporter(known), [alert])
        todo = report(tmp_path, state).partition("## What to do")[2]
        assert "a checkpoint no later than step 39, not from the newest" in todo
        assert ("That is `/out/30.pt`." in todo) is is_named
    none = replace(run, proved_step=None, checkpoints=0.0, checkpoints_seen_at=1.0)
    lacking = replace(state.situation, without_checkpoints={"demo"})
    for known, situation in ((none, state.situation), (run, lacking)):
        for one in (known, replace(known, finished=True)):
            state = CurrentState(exporter(one), [alert], situation)
            todo = report(tmp_path, state).partition("## What to do")[2]
            assert "no complete checkpoint of it is known: it begins at step 0" in todo.lower()
            assert "trainwarden checkpoints" not in todo


@pytest.mark.usefixtures("journal")
def test_a_run_that_has_finished_with_a_loss_that_is_not_finite_is_to_be_started_again(
    tmp_path: Path,
) -> None:
    run = replace(TRAINS, finished=True, step=400, total_steps=400)
    for finite_until in ({("trainer", "loss"): 39.0}, {}):
        known = replace(run, finite_until=finite_until)
        whole = report(tmp_path, CurrentState(exporter(known), ()))
        todo = whole.partition("## What to do")[2]
        again = (
            "Start `demo` again from step 39 or before: `trainwarden checkpoints demo` names it."
        )
        assert (again in todo) == bool(finite_until)
        why = "; **its last finite loss was at step 39: what it saved since is of no use**."
        assert (f"`demo` has finished, step 400{why}" in whole) == bool(finite_until)


@pytest.mark.usefixtures("journal")
def test_alerts_that_read_alike_are_listed_once(tmp_path: Path) -> None:
    name = "TrainingPersonNotReached"
    quiet: dict[str, Any] = {"severity": "warning", "remediation": "", "run": "", "worker": ""}
    alerts = [make_alert(alertname=name, fingerprint=key * 16, **quiet) for key in "12"]
    now = head(report(tmp_path, CurrentState(exporter(TRAINS), alerts)))
    assert now.count(f"{name} (warning) on the host") == 1


@pytest.mark.usefixtures("journal")
def test_restarts_by_the_run_itself_are_reported(tmp_path: Path) -> None:
    one = Announcement(
        run="demo", worker="trainer", pid=7, own_restarts=((NOW - 70, 9), (NOW - 60, 3 << 8))
    )
    announced = AnnouncedRuns({one.key: AnnouncedWorker(one, tmp_path / "a.json", 0)})
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), (), announced=announced)))
    at = STYLE.times.full(NOW - 60)
    again = f"2 times by `--restart on-failure`, last {at} after exit status 3."
    assert f"- `demo/trainer` was restarted {again}\n" in text


@pytest.mark.usefixtures("journal")
def test_attempts_that_end_alike_are_a_line(tmp_path: Path) -> None:
    page = f"""
trainwarden_collector_success{{collector="host"}} 1
trainwarden_collector_success{{collector="workers"}} 1
trainwarden_memory_effective_available_bytes 1e9
trainwarden_memory_available_floor_bytes 1e8
trainwarden_training_step{{run="demo"}} 57
trainwarden_run_attempts_loop_info{{run="demo",trainer="trainer",ends="{LOOP}"}} 1
"""
    text = head(report(tmp_path, CurrentState(parse_exporter_page(page.encode()), ())))
    assert f"- **`demo`: {LOOP}.**" in text


@pytest.mark.usefixtures("journal")
def test_a_run_that_trains_needs_nothing(tmp_path: Path) -> None:
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), ())))
    assert "- `demo` makes steps, step 382, 2 s ago, phase training." in text
    assert "- No alert fires." in text
    assert text.endswith("## What to do\n\nNothing now.\n")


def test_what_does_not_run_and_nobody_starts_is_to_be_done(
    tmp_path: Path, journal: Journal
) -> None:
    line = "`demo/rollout-0` is not running, and nobody starts it again"
    gone = replace(exporter(TRAINS), workers={ROLLOUT: make_worker(processes=0)})
    assert line in report(tmp_path, CurrentState(gone, ()))
    may_restart = CurrentState(gone, (), Situation(NOW, may_restart=(ROLLOUT,)))
    assert line not in report(tmp_path, may_restart)
    gave_up(journal)
    journal.record_alerts([make_alert(firing=False)])
    assert line in report(tmp_path, may_restart)


@pytest.mark.usefixtures("journal")
def test_a_run_whose_trainer_is_gone_does_not_make_steps(tmp_path: Path) -> None:
    gone = make_worker(processes=0, last_exit_code=137)
    run = replace(TRAINS, last_step_at=NOW - 32, trainer_processes=0)
    state = replace(exporter(run), workers={WorkerKey("demo", "trainer"): gone})
    text = head(report(tmp_path, CurrentState(state, ())))
    assert "- **`demo` does not run**; its last step was 382, 32 s ago.\n" in text
    killed = "it was killed by SIGKILL (exit status 137)"
    assert f"- **Worker `demo/trainer` is not running**: {killed}.\n" in text
    assert "makes steps" not in text
    assert "**Who acts: You, now.** The remediator may not restart it." in text
    named = {WorkerKey("demo", "trainer")}
    text = head(report(tmp_path, CurrentState(state, (), Situation(NOW, may_restart=named))))
    soon = "It restarts demo/trainer once its alert fires, some 20 s after its end."
    assert f"**Who acts: The remediator.** {soon}" in text


@pytest.mark.usefixtures("journal")
def test_alerts_that_nobody_acts_on_are_named(tmp_path: Path) -> None:
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), [OOM])))
    handled = "**You, now** (the remediator takes no action on it)"
    assert f"- TrainingOomKill (warning) on the host, since 07:48:20: {handled}." in text
    assert "\n\n**Who acts: You, now.** The remediator takes no action on it.\n\n" in text
    first = "- TrainingOomKill on the host: Find the process that was killed: `dmesg` names it; a "
    assert first in text.partition("## What to do")[2]
    assert "exit status 137. (<https://" in text.partition("## What to do")[2]


STALL = make_alert(alertname="TrainingStepStalled", worker="", remediation="", severity="warning")


@pytest.mark.usefixtures("journal")
def test_of_a_run_that_was_stopped_only_what_outlasts_it_needs_you(tmp_path: Path) -> None:
    leftovers = make_alert(
        alertname="TrainingGpuHeldByLeftovers", worker="", remediation="", severity="critical"
    )
    for alert, who in ((STALL, "Nobody needs to"), (leftovers, "You, now")):
        stopped = Situation(NOW, is_stopped=lambda *_: True)
        state = CurrentState(exporter(TRAINS), [alert], stopped)
        assert f"**Who acts: {who}.**" in head(report(tmp_path, state))
        assert "**Who acts: You, now.**" in head(
            report(tmp_path, CurrentState(exporter(TRAINS), [alert]))
        )


@pytest.mark.usefixtures("journal")
def test_the_alert_of_a_give_up_says_so(tmp_path: Path, journal: Journal) -> None:
    gave_up(journal)
    name = "TrainingRemediationGaveUp"
    alert = make_alert(fingerprint=LATER, alertname=name, severity="critical", remediation="")
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), (alert,))))
    assert "**Who acts: You, now.** The remediator gave up on demo/rollout-0." in text
    assert "no playbook" not in text


def test_a_stall_of_a_worker_that_was_given_up_needs_you(tmp_path: Path, journal: Journal) -> None:
    named = [ROLLOUT]
    situation = Situation(NOW, may_restart=named, trainers=named)
    may = CurrentState(exporter(TRAINS), [STALL], situation)
    assert "**Who acts: The remediator.**" in head(report(tmp_path, may))
    journal.record_alerts([make_alert(starts_at=NOW - 20, severity="critical")])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, "attempts_exhausted"))])
    assert "**Who acts: You, now.** The remediator gave up on " in head(report(tmp_path, may))


def test_an_alert_with_an_open_incident_is_acted_on(tmp_path: Path, journal: Journal) -> None:
    alert = make_alert(starts_at=NOW - 20, severity="critical")
    journal.record_alerts([alert])
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), [alert, OOM])))
    assert "since 07:59:40: **The remediator** (is deciding what to do)." in text
    assert "- TrainingWorkerMemoryOverLimit" not in text.partition("## What to do")[2]


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize(
    ("stuck", "line"),
    [
        (False, "- `demo` has made its last step, step 41, 8 min 37 s ago."),
        (
            True,
            "- **`demo` has made its last step, step 41, 8 min 37 s ago, and has not ended: why**.",
        ),
    ],
)
def test_a_run_that_has_made_its_last_step_makes_no_more(
    tmp_path: Path, line: str, *, stuck: bool
) -> None:
    ends = replace(HANGS_AGAIN, last_step_at=NOW - 517, last_step_made=True)
    ends = replace(ends, stuck=stuck, waits="why")
    assert line in head(report(tmp_path, CurrentState(exporter(ends), ()))).splitlines()


@pytest.mark.usefixtures("journal")
def test_healthy_runs_that_evaluate_in_silence_are_not_being_healed(tmp_path: Path) -> None:
    """Their silence is over the limit of a step, and no longer than their pauses were before."""
    silent = replace(STANDS, phase="training", stall_limit=60, trainer_processes=1)
    paused, waits = replace(silent, pause_limit=600), replace(silent, pause_limit=500)
    hangs = replace(waits, stuck=True)
    situation = Situation(NOW, may_restart={TRAINER}, trainers={TRAINER})
    for shown, title in (
        (paused, "3 runs: 2 are well, 1 stands still."),
        (waits, "3 runs: 2 are well, 1 stands still."),
        (hangs, "3 runs: 2 are well, 1 is being healed or held."),
    ):
        seen = replace(exporter(shown), runs={"demo": shown, "a": TRAINS, "b": TRAINS})
        text = report(tmp_path, CurrentState(seen, (), situation))
        assert text.splitlines()[0] == f"# {title}"
        who = NOBODY if shown is paused else REMEDIATOR
        assert f"**Who acts: {who}.**" in text


def test_the_headline_counts_what_the_same_report_leaves_to_you(
    tmp_path: Path, journal: Journal
) -> None:
    other = make_alert(fingerprint=LATER, worker="rollout-1")
    journal.record_alerts([make_alert(), other])
    first, second = journal.open_incidents()
    journal.record_decisions(
        [
            (first, Decision(Verdict.REFUSE, "unknown_target")),
            (second, Decision(Verdict.WAIT, "cooldown")),
        ]
    )
    text = report(tmp_path, CurrentState(exporter(TRAINS), (make_alert(), other)))
    assert text.count(f"**{YOU}**") == 1
    assert "2 faults; 1 needs you, 1 is still open." in text.splitlines()[0]
    assert "- 1 **need an operator**.\n- 1 still open." in text
    assert "an operator is needed" not in head(text), "the alert has its first step"


@pytest.mark.parametrize(
    "decision",
    [
        Decision(Verdict.WAIT, "observe_mode"),
        Decision(Verdict.WAIT, "breaker_open"),
        Decision(Verdict.WAIT, "managed_elsewhere"),
        Decision(Verdict.REFUSE, "unknown_target"),
    ],
)
def test_an_incident_that_waits_for_an_operator_is_not_acted_on(
    tmp_path: Path, journal: Journal, decision: Decision
) -> None:
    alert = make_alert(starts_at=NOW - 20, severity="critical")
    journal.record_alerts([alert])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, decision)])
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), [alert])))
    assert "**Who acts: You, now.**" in text
    assert "since 07:59:40: **You, now** (the remediator " in text


def test_a_cooldown_says_until_when(tmp_path: Path, journal: Journal) -> None:
    alert = make_alert(starts_at=NOW - 20, severity="critical")
    journal.record_alerts([alert])
    (incident,) = journal.open_incidents()
    cooldown = Decision(Verdict.WAIT, "cooldown", detail="until 08:01:40 UTC")
    journal.record_decisions([(incident, cooldown)])
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), [alert])))
    assert "(waits: too soon after the last action, until 08:01:40 UTC)" in text


def test_what_repeats_is_counted(tmp_path: Path, journal: Journal) -> None:
    for ago in (780, 300, 0):
        alert: Alert = make_alert(
            starts_at=NOW - ago, alertname="TrainingInferenceDown", worker="inference"
        )
        journal.record_alerts([alert])
        journal.record_alerts([replace(alert, firing=False)])
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), ())))
    assert "- `demo/inference`: TrainingInferenceDown 3 times in 13 min." in text


def test_a_fault_that_each_restart_heals_for_a_while_has_its_pace_its_cost_and_what_mends_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    with closing(Journal(tmp_path / "journal.db", clock=clock)) as journal:
        for _ in range(3):
            heal(journal, clock, steps_repeated=30)
    text = head(report(tmp_path, CurrentState(exporter(TRAINS), ())))
    assert "TrainingWorkerMemoryOverLimit 3 times in 1 h 20 min. Healed 3 times since 08:00" in text
    assert "comes back 40 min after each restart, and has cost 3 min and 90 steps made" in text
    assert "Each restart helps for a while: mend the leak, or raise its memory limit" in text


@pytest.mark.usefixtures("journal")
def test_what_is_not_known_and_what_is_held_is_stated(tmp_path: Path) -> None:
    hold = Hold(who="root", why="measuring")
    situation = Situation(NOW, holds=[hold])
    text = head(report(tmp_path, CurrentState("refused", "Alertmanager: refused", situation)))
    assert "**The state of the runs is not known**: the exporter does not answer (refused)." in text
    assert "**The active alerts are not known**: Alertmanager: refused." in text
    assert "**Nothing will be healed**: held by root: measuring." in text
    assert "No alert fires" not in text
    assert text.startswith(
        "# How much the runs trained is not known: the exporter does not answer."
    )
    assert "**Who acts: You, now.** A part of the monitoring does not answer." in text


def test_a_hold_is_for_who_set_it(tmp_path: Path, journal: Journal) -> None:
    alert = make_alert(starts_at=NOW - 20, severity="critical")
    journal.record_alerts([alert])
    hold = Hold(who="ann", until=NOW + 3600)
    state = CurrentState(exporter(TRAINS), [alert], Situation(NOW, holds=[hold]))
    text = head(report(tmp_path, state))
    assert "**Who acts: ann, until 09:00 UTC.** The remediator does nothing until then." in text


@pytest.mark.parametrize(
    ("run", "still"),
    [
        (TRAINS, False),
        (STANDS, True),
        (replace(STANDS, last_step_at=NOW - 40), False),
        (replace(STANDS, last_step_at=NOW - 42), True),
        (replace(STANDS, phase="saving"), False),
        (replace(STANDS, phase="saving", stall_limit=100), True),
        (replace(STANDS, finished=True), False),
        (replace(STANDS, usual_step_seconds=None), False),
        (RunState(), False),
        (HANGS_AGAIN, True),
        (replace(HANGS_AGAIN, stuck=False), False),
        (replace(HANGS_AGAIN, stuck=False, stall_limit=60), True),
    ],
)
def test_a_run_stands_still_if_its_step_takes_longer_than_usual(run: RunState, still: bool) -> None:
    assert stands_still(run, NOW) is still


async def test_the_state_is_asked_over_http(box: Box) -> None:
    box.known = {}
    box.fire(fingerprint=LATER, labels={"alertname": "TrainingOomKill", "remediation": ""})
    setup = await asyncio.to_thread(load_setup, box.config_file)
    async with aiohttp.ClientSession() as session:
        current = await read_current_state(setup, session, WallClock())
        assert isinstance(current.exporter, ExporterState)
        assert not isinstance(current.alerts, str)
        assert [alert.name for alert in current.alerts] == ["TrainingOomKill"]
        box.blind = True
        blind = await read_current_state(setup, session, WallClock())
    assert (type(blind.exporter), type(blind.alerts)) == (str, str)


async def test_the_mode_is_that_of_the_running_remediator(box: Box) -> None:
    box.configure(mode="observe")
    setup = await asyncio.to_thread(load_setup, box.config_file)
    async with aiohttp.ClientSession() as session:
        assert await mode_in_force(setup, session) == "observe"
        box.status = {"remediator": {"mode": "act"}}
        assert await mode_in_force(setup, session) == "act"
        unknown: tuple[Any, ...] = ({"remediator": None}, {"remediator": "no answer"}, [])
        for box.status in unknown:
            assert await mode_in_force(setup, session) == "observe"
        box.blind = True
        assert await mode_in_force(setup, session) == "observe"


async def test_a_file_that_the_running_remediator_has_not_read_is_named(box: Box) -> None:
    setup = await asyncio.to_thread(load_setup, box.config_file)
    changed, own = box.config_file.stat().st_ctime, str(box.config_file.resolve())
    read = {"config_file": own, "config_read_at": changed + 1}
    unread: tuple[tuple[Any, str], ...] = (
        (read, ""),
        (read | {"config_read_at": changed - 1}, "has changed since the running remediator read"),
        (read | {"config_file": "/srv/other.yml"}, "remediator reads /srv/other.yml, not "),
        ({"mode": "act"}, "it is not known whether a remediator has read"),
        (None, "it is not known whether a remediator has read"),
    )
    async with aiohttp.ClientSession() as session:
        for status, what in unread:
            box.status = {"remediator": status}
            running = await running_remediator(setup, session)
            found = describe_unread(box.config_file, setup, running)
            assert (what in found, bool(found)) == (True, bool(what))
    async with staged(box) as stage:  # what a running one reports
        reported = await stage.asked()
    assert isinstance(reported, RemediatorStatus)
    assert reported.config_file == own
    assert changed <= (reported.config_read_at or 0) <= time.time()
