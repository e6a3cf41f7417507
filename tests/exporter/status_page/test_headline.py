"""The headline: who acts on it is who acts on that problem, and the most urgent comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from trainwarden.commands.status import describe
from trainwarden_exporter.runtime.responsibility import (
    HELD_BY_ALERT,
    MAKE_ROOM,
    NOBODY,
    NOTHING_YET,
    REMEDIATOR,
    STALL,
    STALL_CONSEQUENCES,
    STALLED,
    YOU,
)
from trainwarden_exporter.status_page.disks import DiskView
from trainwarden_exporter.status_page.gpus import GpusView
from trainwarden_exporter.status_page.headline import Headline, summarize
from trainwarden_exporter.status_page.host import HostView
from trainwarden_exporter.status_page.page import PageData, status_json
from trainwarden_exporter.status_page.part_views import CheckpointView, ServerView
from trainwarden_exporter.status_page.problems import (
    Problem,
    host_problems,
    run_problems,
    waits_for_server,
)
from trainwarden_exporter.status_page.remediator import first_steps, with_standstills
from trainwarden_exporter.status_page.remediator_client import (
    FiringAlert,
    RemediatorHold,
    RemediatorStatus,
)
from trainwarden_exporter.status_page.run_text import describe_run
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.series import Tone

HUNG = RunView(
    "hang", phase="training", usual_seconds=2, step_age=1500, silence=1500, stall_limit=1800
)
OVERDUE = "TrainingCheckpointOverdue"
UNHANDLED = "the remediator takes no action on it"


def firing(alert: str, run: str, who: str, handling: str, tone: Tone = "warn") -> FiringAlert:
    step = f"Step of {alert}." if who == YOU else ""
    return FiringAlert(
        alert=alert,
        run=run,
        worker="",
        since=1.0,
        tone=tone,
        who_acts=who,
        handling=handling,
        first_step=step,
    )


def status(*alerts: FiringAlert) -> RemediatorStatus:
    standing = with_standstills(
        RemediatorStatus(
            mode="act",
            tone="warn",
            verdict="",
            open_alerts=0,
            alerts=(),
            actions=(),
            firing=alerts,
            may_restart=("hang/trainer",),
        ),
        {"hang"},
    )
    assert isinstance(standing, RemediatorStatus)
    return standing


def headline(*alerts: FiringAlert, run: RunView = HUNG) -> Headline:
    return summarize(run_problems(run), [run], status(*alerts))


def test_the_consequences_are_the_alerts_that_the_shipped_alertmanager_drops() -> None:
    rules = yaml.safe_load(Path("rules/alertmanager.yml").read_text())["inhibit_rules"]
    source = [f'alertname="{STALL}"', 'severity="critical"']
    (own,) = (one for one in rules if one["source_matchers"] == source)
    assert own["target_matchers"] == [own["target_matchers"][0]]
    names = own["target_matchers"][0].removeprefix('alertname=~"').removesuffix('"')
    assert frozenset(names.split("|")) == STALL_CONSEQUENCES


def test_a_hang_is_not_yours_because_it_saves_no_checkpoint() -> None:
    """Neither before an alert of the hang, nor beside it; nor is the disk the first thing."""
    overdue = firing(OVERDUE, "hang", YOU, UNHANDLED)
    early = headline(overdue)
    assert early.sentence.startswith("hang has made no step for 25 min")
    assert (early.who, early.how) == (NOBODY, NOTHING_YET)
    assert first_steps(status(overdue)) == []
    stall = firing(STALL, "hang", REMEDIATOR, STALLED)
    assert headline(overdue, stall).who == REMEDIATOR
    assert STALLED in headline(overdue, stall).how
    halted = firing(STALL, "hang", YOU, "the remediator gave up on hang")
    assert headline(overdue, halted).who == YOU


def test_another_fault_of_a_run_that_stands_still_has_a_line_of_its_own() -> None:
    stall = firing(STALL, "hang", REMEDIATOR, STALLED)
    nan = firing("TrainingNotFinite", "hang", YOU, UNHANDLED, tone="bad")
    found = headline(stall, nan)
    assert found.sentence.startswith("TrainingNotFinite fires on hang")
    assert [one.who for one in found.problems] == [YOU, REMEDIATOR]


def test_status_has_one_line_for_a_problem_that_is_nothing_but_an_alert() -> None:
    """`trainwarden status` has one line for both, and goes by no word of the text."""
    nan = firing("TrainingNotFinite", "other", YOU, UNHANDLED)
    data = status_json(PageData(0, 0, None, 0, (), remediator=status(nan)))
    (only,) = data["problems"]
    assert [only[key] for key in ("alert", "run", "worker")] == ["TrainingNotFinite", "other", ""]
    assert sum("TrainingNotFinite" in line for line in describe(data, every=True)) == 2
    hung = headline(firing(STALL, "hang", REMEDIATOR, STALLED))
    assert [one.alert for one in hung.problems] == [""]


def test_what_nobody_needs_to_act_on_is_not_the_headline_beside_what_needs_somebody() -> None:
    """However bad it is: an operator has stopped the one, and set a hold on the other."""
    over = firing("TrainingWorkerRestartLoop", "oom", NOBODY, "an operator has stopped it", "bad")
    held = firing("TrainingWorkerGone", "demo", "ann, until 5:00", "held")
    for first in (held, firing("TrainingRankSlow", "demo", YOU, UNHANDLED)):
        found = summarize((), (), status(over, first))
        assert found.who == first.who_acts
        assert [one.run for one in found.problems] == ["demo", "oom"]


def test_a_disk_without_room_for_the_next_checkpoint_is_yours_before_its_alert() -> None:
    """The alert fires after a minute: the next save may have failed by then."""
    saved = CheckpointView("trainer", 50, 5.0, 10.0, left=0.4)
    full = replace(HUNG, silence=1.0, step_age=1.0, checkpoints=(saved,))
    disk = DiskView("/data", up=True, size=100.0, free=0.4, floor=5.0)
    problems = [*run_problems(full), *host_problems(HostView(), GpusView(), [disk], ())]
    gone = firing("TrainingWorkerGone", "hang", REMEDIATOR, "restarts it")
    for early in (status(), status(gone)):
        found = summarize(problems, [full], early)
        shown = [(one.tone, one.who, one.clause, one.how) for one in found.problems[:2]]
        assert (found.who, found.tone) == (YOU, "bad")
        assert shown == [
            (
                *("bad", YOU, "there is room for not even one more checkpoint of hang"),
                f"The next save fails: {MAKE_ROOM}.",
            ),
            ("bad", YOU, "disk /data: full", f"The next save fails: {MAKE_ROOM}."),
        ]
    held = "mend its cause: until this alert ends, the remediator restarts nothing there"
    late = summarize(problems, [full], status(firing("TrainingDiskFilling", "hang", YOU, held)))
    assert (late.who, late.how) == (YOU, f"{held[0].upper()}{held[1:]}.")


def test_a_disk_that_is_nearly_full_is_yours_if_the_next_checkpoint_does_not_fit() -> None:
    low = DiskView("/data", up=True, size=100.0, free=2.0, floor=5.0, runs=frozenset({"hang"}))
    for runs, who in (({"hang"}, YOU), ({"other"}, NOBODY), ((), NOBODY)):
        problems = host_problems(HostView(), GpusView(), [low], runs)
        (shown,) = summarize(problems, [], status()).problems
        assert (shown.clause, shown.who) == ("disk /data: nearly full", who)


def test_a_loss_of_nan_is_yours_from_the_first_look_on() -> None:
    """Nothing heals it, and the alert that calls you waits for the best part of a minute."""
    saved = CheckpointView("trainer", 50, 5.0, 10.0, finite_until=39.0)
    run = replace(HUNG, silence=1.0, step_age=1.0, checkpoints=(saved,))
    line = firing("TrainingErrorStorm", "hang", NOBODY, "its run has been started since")
    nan = firing("TrainingNotFinite", "hang", YOU, UNHANDLED, "bad")
    for known in (status(), status(line), status(line, nan)):
        found = summarize(run_problems(run), [run], known)
        assert found.sentence.startswith("the loss of hang is NaN or infinite: its newest")
        assert found.who == YOU
        assert found.how == (
            "No restart heals a loss that is not finite; if it lasts, `trainwarden runbook "
            "TrainingNotFinite` says what to do."
        )
    assert not list(run_problems(replace(run, checkpoints=(replace(saved, finite_until=None),))))


def test_status_says_why_nobody_acts_on_an_alert_that_has_not_ended() -> None:
    again = "its run has made a step since: the alert ends within half a minute"
    stall = firing(STALL, "other", NOBODY, again)
    slow = firing("TrainingRankSlow", "demo", YOU, UNHANDLED)
    data = status_json(PageData(0, 0, None, 0, (), remediator=status(slow, stall)))
    (line,) = [one for one in describe(data, every=True) if STALL in one]
    assert line == (
        "  also: TrainingStepStalled on other has not ended yet (Nobody needs to). Its run has made"
        " a step since: the alert ends within half a minute."
    )


def test_little_room_while_a_checkpoint_is_written_is_not_yours() -> None:
    """What saves first and deletes the oldest then needs no more room than it has."""
    saved = CheckpointView("trainer", 50, 5.0, 10.0, left=0.4)
    for one in (replace(saved, saving=True), replace(saved, settling=True), replace(saved, left=2)):
        run = replace(HUNG, silence=1.0, step_age=1.0, checkpoints=(one,))
        assert summarize(run_problems(run), [run], status()).who == NOBODY


def test_what_failed_on_a_full_disk_is_not_to_be_started_as_that_is_done_once_there_is_room() -> (
    None
):
    held = "mend its cause: until this alert ends, the remediator restarts nothing there"
    disk = firing("TrainingDiskFilling", "hang", YOU, held, "bad")
    dead = Problem("bad", "hang/trainer has failed", "hang", "trainer", gone=True, failed=True)
    dead = replace(dead, start_command="cd /w && trainwarden run -- a", dismissal="Or dismiss it.")

    def how(remediator: RemediatorStatus) -> str:
        return summarize([dead], (), remediator).how

    room = "Once there is room, it is restarted automatically."
    assert how(status(disk)) == f"{held[0].upper()}{held[1:]}. {room} Or dismiss it."
    waits = f"the remediator does not act: {HELD_BY_ALERT}"
    gone = firing("TrainingWorkerGone", "hang", YOU, waits, "bad")
    assert how(status(gone, disk)) == how(status(disk))
    assert room not in how(status(gone))
    loop = firing("TrainingWorkerRestartLoop", "hang", YOU, held, "bad")
    typed = "When its cause is mended: `cd /w && trainwarden run -- a`."
    for other in (
        status(disk, loop),
        status(disk).model_copy(update={"mode": "observe"}),
        status(disk).model_copy(update={"may_restart": ()}),
        status(disk).model_copy(update={"given_up": ("hang/trainer",)}),
    ):
        assert typed in how(other)


def test_a_checkpoint_that_is_overdue_as_a_server_is_down_is_not_beside_it() -> None:
    def run(age: float, since: float | None, reason: str = "refused") -> RunView:
        server = ServerView("inference", "vllm", up=reason == "ok", reason=reason, since=since)
        saved = CheckpointView("trainer", 50, age, 10.0)
        return RunView("demo", phase="training", checkpoints=(saved,), servers=(server,))

    server = "inference server inference of demo is down (refused) for 24 s"
    waiting = run(45, 24)
    assert [one.clause for one in run_problems(waiting)] == [server]
    assert waits_for_server(waiting)
    for other in (run(70, 24), run(45, None), run(45, 24, "ok"), run(45, 24, "starting")):
        assert any("overdue after 20 s" in one.clause for one in run_problems(other))
        assert not waits_for_server(other)


def test_an_overdue_checkpoint_is_not_the_fault_behind_another_alert() -> None:
    """The server answers again, and nothing was saved while it was down."""
    saved = CheckpointView("trainer", 50, 27.0, 10.0)
    server = ServerView("inference", "vllm", reason="ok", since=2)
    run = RunView("hang", phase="training", checkpoints=(saved,), servers=(server,))
    down = firing("TrainingInferenceDown", "hang", REMEDIATOR, "is checking it", "bad")
    clauses = [one.clause for one in headline(down, run=run).problems]
    overdue = "the newest checkpoint of hang is 27 s old (overdue after 20 s)"
    assert clauses == ["TrainingInferenceDown fires on hang", overdue]
    spoilt = replace(run, checkpoints=(replace(saved, finite_until=39.0),))
    nan = headline(firing("TrainingNotFinite", "hang", YOU, UNHANDLED), run=spoilt)
    assert len(nan.problems) == 1, "that the loss is NaN is one problem"
    alone = headline(firing(OVERDUE, "hang", YOU, UNHANDLED), run=run)
    assert [one.clause for one in alone.problems] == [overdue]


def test_of_equal_problems_the_first_is_that_of_the_remediators_page() -> None:
    alerts = [firing("TrainingRankSlow", run, YOU, UNHANDLED) for run in ("b", "a")]
    runs = [
        RunView(name, phase="training", usual_seconds=2, step_age=100, silence=1)
        for name in ("a", "b")
    ]
    problems = [problem for run in runs for problem in run_problems(run)]
    assert [one.run for one in summarize(problems, runs, status(*alerts)).problems] == ["b", "a"]
    assert [one.run for one in first_steps(status(*alerts))] == ["b", "a"]


def test_a_run_that_has_made_its_last_step_does_not_stand_still() -> None:
    """It merges or uploads; its age since the last save is nobody's trouble, either."""
    saved = CheckpointView("default", step=60, age=1500, interval=60, finished=True)
    ends = replace(HUNG, step=60, total=60, silence=1900, last_step_made=True, checkpoints=(saved,))
    assert list(run_problems(ends)) == []
    assert ends.state == "last step made"
    done = "hang has made its last step, step 60 of 60 (25 min ago), last complete save 25 min ago"
    assert describe_run(ends) == done
    assert done in summarize((), (ends,), None).sentence


def test_no_restart_is_announced_of_a_run_that_hangs_after_its_last_step() -> None:
    made = replace(HUNG, step=60, total=60, silence=1900, last_step_made=True)
    run = replace(made, restart_limit=3600, stuck=True, waits="process 7 waits at a.py:1")
    (problem,) = run_problems(run)
    clause = "hang made its last step 31 min 40 s ago, and has not ended: process 7 waits at a.py:1"
    assert (problem.clause, problem.limit) == (clause, None)
    assert run.state == "last step made"
    assert describe_run(run).startswith("hang has made its last step, step 60 of 60 (25 min ago)")
    able = status().model_copy(update={"may_restart": (), "may_restart_stalled": ("hang",)})
    shown = summarize([problem], [run], able)
    never = "after its last step it is never restarted"
    assert (shown.who, never in shown.how, "restarts" in shown.how) == (REMEDIATOR, True, False)


def test_a_hold_decides_nothing_about_a_command_that_has_ended_in_its_terminal() -> None:
    """Before its alert: the remediator can start only what it names as restartable."""
    hold = RemediatorHold(run="", worker="", who_acts="ann, until 5:00", text="held by ann")
    held = status().model_copy(update={"holds": (hold,)})
    for run, who in (("hang", hold.who_acts), ("ended", YOU)):
        gone = Problem("bad", "it failed", run, "trainer", gone=True, failed=True)
        assert summarize([gone], [], held).who == who
