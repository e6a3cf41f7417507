"""What an operator does about a call is in its message, with the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import NOW, TRAINER, announced, make_alert, make_setup, with_folder

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_exporter.webserver.runbooks import NOTHING_SAVED, first_step
from trainwarden_remediator.config.restart_methods.run import WRAPPER_ENDED
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.evidence_text import FaultFacts, fault_facts
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import PastAction
from trainwarden_remediator.notify.advice import advice
from trainwarden_remediator.notify.messages import VALUE_LENGTH, Notification, build_message
from trainwarden_remediator.notify.runbook_advice import stack_logs
from trainwarden_remediator.policy.alert_handling import AlertView
from trainwarden_remediator.policy.failing_starts import mend_hint

COMMAND = {"argv": ("python", "a.py"), "options": ("--name", "demo"), "cwd": "/w"}
TYPED = "`cd /w && trainwarden run --name demo --detach -- python a.py`"
LOOP = ("TrainingWorkerRestartLoop", "hold")
NO_CHECKPOINT = ("TrainingStepStalled", "no_checkpoint")


def call(alert: str, reason: str, worker: str = "trainer") -> Notification:
    facts: dict[str, Any] = {"verdict": "act", "reason": reason}
    event = Event(7, NOW, 3, None, "decision", alert, "demo", worker, facts)
    event_name: Any = "held_by_alert" if reason == "hold" else "gave_up"
    return Notification(1, "phone", event_name, event, alert_started_at=NOW - 5)


def restarted(ago: float, alert: str, **changes: Any) -> PastAction:
    done = PastAction(1, TRAINER, NOW - ago, NOW - ago + 9, result="done", alert=alert)
    return replace(done, **changes)


def advised(tmp_path: Path, one: Notification, *actions: PastAction, **changes: Any) -> str:
    saves = changes.pop("saves", False)
    known = announced(**{"announced_at": NOW - 900, "restart": "on-request", **COMMAND, **changes})
    setup = replace(make_setup(tmp_path, "demo/trainer"), announced=AnnouncedRuns(known))
    return advice(one, with_folder(setup, tmp_path) if saves else setup, actions)


def test_a_loop_of_a_leak_names_memory_and_ends_the_run_that_goes_on(tmp_path: Path) -> None:
    leaks = [restarted(ago, "TrainingWorkerMemoryOverLimit") for ago in (240, 120, 20)]
    text = advised(tmp_path, call(*LOOP), *leaks)
    assert (
        "The remediator restarted it 3 times since 07:56 UTC as it exceeds its memory limit."
        in text
    )
    assert "It still runs and grows: `trainwarden stop demo` ends it." in text
    assert "Another restart alone does not help: mend the leak" in text
    healed = (*(replace(one, healed=True) for one in leaks[:2]), replace(leaks[2], ended_at=None))
    assert "Each restart helps for a while: mend the leak" in advised(
        tmp_path, call(*LOOP), *healed
    )
    ended: dict[str, Any] = {"state": "failed", "ended_at": NOW - 1, "exits": ((7, 1, 256),)}
    assert "still runs" not in advised(tmp_path, call(*LOOP), *leaks, **ended)
    last = restarted(5, "TrainingWorkerMemoryOverLimit", ended_at=None)
    assert "restart that is in progress goes on" in advised(tmp_path, call(*LOOP), *leaks, last)


def test_a_loop_of_crashes_that_were_healed_says_how_often_and_that_the_work_is_repeated(
    tmp_path: Path,
) -> None:
    crashes = [
        restarted(ago, "TrainingWorkerGone", healed=True, attempt=1) for ago in (540, 360, 180)
    ]
    lines = {"last_lines": ("RuntimeError: bad batch",)}
    text = advised(tmp_path, call(*LOOP), *crashes, **lines)
    assert text.startswith(
        "It has crashed 3 times since 07:51 UTC, though each restart healed it: "
        "`RuntimeError: bad batch`. Each restart helps until the next crash, and repeats what was "
        "not saved: mend the cause, then start it yourself: "
    )
    hint = "Each restart helps until the next crash, and repeats what was not saved"
    assert mend_hint("TrainingWorkerGone") == f"{hint}: mend its cause."
    now = restarted(5, "TrainingWorkerGone", ended_at=None)
    assert "crashed 4 times since" in advised(tmp_path, call(*LOOP), *crashes, now)
    fails = restarted(60, "TrainingWorkerGone", attempt=2)
    assert "It failed after the last restart" in advised(tmp_path, call(*LOOP), *crashes, fails)
    assert "has crashed" not in advised(tmp_path, call(*LOOP), crashes[0])
    leaks = (replace(one, alert="TrainingWorkerMemoryOverLimit") for one in crashes)
    assert "has crashed" not in advised(tmp_path, call(*LOOP), *leaks)


def test_a_give_up_says_once_how_many_restarts_failed(tmp_path: Path) -> None:
    """New steps have renewed the attempts: the journal counts three of the four restarts."""
    failed = [
        restarted(ago, "TrainingWorkerGone", attempt=attempt, attempts=3)
        for ago, attempt in ((500, 1), (400, 1), (250, 2), (60, 3))
    ]
    one = call("TrainingWorkerGone", "attempts_exhausted")
    tried = (("restart", "not_healed in the hour before"),) * 4
    cleaned = ("gpu_cleanup", "healed")
    called = replace(one, attempts=tried, advice=advised(tmp_path, one, *failed))
    (item,) = build_message([called], instance="b", mode="act").items
    assert item.values["What to do"].startswith(
        "It failed after the last 4 restarts by the remediator. Another restart alone does not help"
    )
    assert "Tried" not in item.values, "the advice has the restarts, with their number"
    assert item.values["What"].endswith("no attempts left: gave up, an operator is needed")
    more = replace(called, attempts=(*tried, cleaned, cleaned))
    (item,) = build_message([more], instance="b", mode="act").items
    assert item.values["Tried"] == "gpu_cleanup healed, 2 times"
    (item,) = build_message([replace(called, advice="")], instance="b", mode="act").items
    assert item.values["Tried"].endswith("4 times")


@pytest.mark.parametrize("state", ["failed", "running"])
def test_a_loop_of_the_run_itself_says_that_it_goes_on(tmp_path: Path, state: str) -> None:
    end: dict[str, Any] = (
        {"ended_at": NOW - 1, "exits": ((7, 1, 256),)} if state == "failed" else {}
    )
    own = {"restart": "on-failure", "state": state, "own_restarts": ((NOW - 1, 256),)}
    lines = {"last_lines": ("RuntimeError: bad batch",)}
    text = advised(tmp_path, call(*LOOP), **own, **end, **lines)
    assert "It failed after the one restart by `--restart on-failure`: " in text
    assert "`RuntimeError: bad batch`" in text
    assert "still starts it again" in text
    assert "`trainwarden stop demo` ends that." in text


WITH_COMMAND = WRAPPER_ENDED.replace("--detach -- COMMAND", "--name demo -- python train.py")


@pytest.mark.parametrize("detail", [WRAPPER_ENDED, WITH_COMMAND])
@pytest.mark.parametrize("state", ["running", "failed"])
def test_what_may_live_of_a_run_whose_own_programs_were_killed_is_named_by_stop(
    tmp_path: Path, state: str, detail: str
) -> None:
    facts = {"verdict": "wait", "reason": "managed_elsewhere", "detail": detail}
    event = Event(7, NOW, 3, None, "decision", "TrainingWorkerGone", "demo", "trainer", facts)
    text = advised(tmp_path, Notification(1, "phone", "blocked", event), state=state)
    killed = "processes of it may live: `trainwarden stop demo` names them"
    assert (killed in text) == (state == "running"), "its end was recorded"


def test_a_command_that_can_never_start_names_its_line_and_what_starts_it(tmp_path: Path) -> None:
    line = "python3: can't open file '/w/trian.py': [Errno 2] No such file or directory"
    end: dict[str, Any] = {"state": "failed", "ended_at": NOW - 1, "exits": ((7, 1, 512),)}
    one = call("TrainingWorkerGone", "managed_elsewhere")
    text = advised(tmp_path, one, never_works=True, last_lines=(line,), **end)
    does = "Mend the cause, then start it yourself"
    assert text.startswith(f"It can never start: `{line}`. {does}: {TYPED}")
    assert advised(tmp_path, one, last_lines=(line,), **end) == ""


def test_the_command_that_starts_a_run_again_is_in_its_message_once(tmp_path: Path) -> None:
    facts = {"verdict": "wait", "reason": "managed_elsewhere", "detail": WITH_COMMAND}
    event = Event(7, NOW, 3, None, "decision", "TrainingWorkerGone", "demo", "trainer", facts)
    one = Notification(1, "phone", "blocked", event)
    end: dict[str, Any] = {"state": "failed", "ended_at": NOW - 1, "exits": ((7, 1, 256),)}
    own = {"restart": "on-failure", "own_restarts": ((NOW - 1, 256),)}
    text = advised(tmp_path, one, **own, **end)
    command = TYPED.strip("`").replace(" --detach", "")
    assert f"mend the cause, then start it yourself: `{command}`" in text
    known = replace(one, advice=text, fault=FaultFacts(start=command))
    assert str(item_of(known)).count(command) == 1
    assert item_of(replace(known, advice="Mend it."))["Start again"] == command


def test_a_loop_without_a_known_cause_has_an_instruction_too(tmp_path: Path) -> None:
    text = advised(tmp_path, call(*LOOP))
    assert "three times or more in the ten minutes before 07:59 UTC: mend the cause." in text


@pytest.mark.parametrize("worker", ["trainer", ""])
def test_a_run_without_a_checkpoint_is_ended_and_started_again(tmp_path: Path, worker: str) -> None:
    text = advised(tmp_path, call(*NO_CHECKPOINT, worker=worker))
    assert text.startswith("`trainwarden stop demo` ends it. Mend the cause, then start it again")
    assert f"with `--checkpoints FOLDER` added: {TYPED}" in text


def test_a_run_that_hangs_after_its_last_step_is_not_started_again(tmp_path: Path) -> None:
    """Its page has the same first step."""
    text = advised(tmp_path, call("TrainingStepStalled", "last_step_made", worker=""))
    assert text.startswith("`trainwarden stacks demo` names the line in which it hangs after its ")
    assert text.endswith("nothing but its end is missing: `trainwarden stop demo` ends it.")
    alert = make_alert(alertname="TrainingStepStalled", run="demo", worker="")
    hangs = AlertView(alert, YOU, "it hangs after its last step", reason="last_step_made")
    assert first_step(alert.name, hangs.step_labels) == text


def unhandled(alert: str = "TrainingCheckpointOverdue", run: str = "demo") -> Notification:
    facts: dict[str, Any] = {"fingerprint": "a" * 16}
    event = Event(7, NOW, None, None, "unhandled", alert, run, "", facts)
    return Notification(1, "phone", "unhandled", event)


def test_an_alert_that_nobody_handles_has_the_commands_of_its_run(tmp_path: Path) -> None:
    text = advised(tmp_path, unhandled())
    assert text.startswith("`trainwarden stop demo` ends it. Mend the cause, then start it again")
    assert TYPED in text
    assert "--checkpoints" not in text
    ended: dict[str, Any] = {"state": "failed", "ended_at": NOW - 1, "exits": ((7, 1, 256),)}
    assert "trainwarden stop" not in advised(tmp_path, unhandled(), **ended)


def test_a_loss_that_is_nan_is_not_started_again_from_its_newest_checkpoint(tmp_path: Path) -> None:
    call = unhandled("TrainingNotFinite")
    text = advised(tmp_path, call, saves=True)
    names = "`trainwarden checkpoints demo` names the checkpoint to go back to, if known."
    stop = "`trainwarden stop demo` ends it."
    moves = f"{stop} Move the checkpoints from after the last finite value to another"
    assert text.startswith(f"{names} {moves}")
    assert f", then start it again: {TYPED}" in text
    detail = "until step 39; `trainwarden checkpoints demo` lists them"
    facts = {**call.event.facts, "detail": detail}
    known = replace(call, event=replace(call.event, facts=facts))
    assert advised(tmp_path, known, saves=True).startswith(moves)
    text = advised(tmp_path, call)  # its folder is not named
    assert text.startswith(f"{NOTHING_SAVED.capitalize()}. {stop} Mend the cause, then start")
    assert f"with `--checkpoints FOLDER` added: {TYPED}" in text


@pytest.mark.parametrize("kind", ["unhandled", "run_finished", "unhandled_ended"])
def test_a_loss_that_is_nan_without_a_checkpoint_begins_at_step_0(
    tmp_path: Path, kind: str
) -> None:
    call = unhandled("TrainingNotFinite")
    facts = {**call.event.facts, "finite_until": 29.0, "nothing_saved": True}
    if kind == "unhandled":
        facts = {**call.event.facts, "detail": f"stop the run; {NOTHING_SAVED}"}
    call = replace(call, event=replace(call.event, kind=kind, facts=facts))
    text = advised(tmp_path, call, saves=True)
    assert "checkpoints" not in text
    assert text.startswith(f"{NOTHING_SAVED.capitalize()}. ") == (kind != "unhandled")
    assert f"Mend the cause, then start it again: {TYPED}" in text


def test_no_message_asks_for_a_start_of_a_finished_run(tmp_path: Path) -> None:
    ended: dict[str, Any] = {"state": "finished", "ended_at": NOW - 1, "exits": ((7, 1, 0),)}
    text = advised(tmp_path, unhandled("TrainingCheckpointDamaged"), **ended)
    assert text == "Its run has finished: nobody needs to start it again."


def test_an_alert_of_the_host_or_of_a_run_of_the_file_has_the_step_of_its_runbook(
    tmp_path: Path,
) -> None:
    text = advised(tmp_path, unhandled("TrainingGpuLost", run=""))
    assert text.startswith("The kernel's log. XID 79: fell off the bus")
    assert advised(tmp_path, unhandled("TrainingWaitingForRollouts", run="other")) == "", (
        "of a cause"
    )
    exporter = advised(tmp_path, unhandled("TrainingExporterDown", run=""))
    assert exporter.startswith("See whether it runs: `pgrep -af trainwarden-exporter`.")
    other = advised(tmp_path, unhandled("TrainingCheckpointDamaged", run="other"))
    assert other == "`trainwarden checkpoints other` names each damage with its kind and its file."


def test_a_call_for_the_exporter_of_a_stack_names_its_log_and_that_it_is_started_again(
    tmp_path: Path,
) -> None:
    logs, setup = tmp_path / "logs", make_setup(tmp_path, "demo/trainer")
    environment = {"SUPERVISOR_SERVER_URL": f"unix://{tmp_path}/supervisor.sock"}
    assert stack_logs(environment) is None
    logs.mkdir()
    (logs / "exporter.log").touch()
    assert stack_logs(environment) == logs
    assert stack_logs({"SUPERVISOR_SERVER_URL": "http://localhost:9001"}) is None
    assert stack_logs({}) is None
    text = advice(unhandled("TrainingExporterDown", run=""), setup, (), logs)
    assert text == (
        "The stack starts it again automatically, also where it hangs; `trainwarden status` shows"
        " whether it answers. If this lasts for minutes, its log says why:"
        f" {logs}/exporter.log."
    )


BLOCKED = "The remediator asks again every few seconds, and acts once it has an answer."


@pytest.mark.parametrize(
    ("reason", "detail", "text"),
    [
        (
            "observation_failed",
            "http://127.0.0.1:1/metrics did not respond within 5 s",
            (
                f"{BLOCKED} `trainwarden status` shows whether the exporter answers; its log:"
                " /s/logs/exporter.log."
            ),
        ),
        (
            "observation_failed",
            "http://127.0.0.1:2/api/v2/alerts: refused",
            (
                f"{BLOCKED} `trainwarden status` shows whether Alertmanager answers; its log:"
                " /s/logs/alertmanager.log."
            ),
        ),
        (
            "disk_unusable",
            "the disk of /data is full",
            "/data has 0 B of 96.0 KiB free. `du -xh --max-depth 2 /data | sort -h | tail -20`",
        ),
        (
            "account_limit",
            "",
            "As many restarts of the runs of one account as its circuit breaker allows",
        ),
        ("managed_elsewhere", "stopped at its manager", ""),
    ],
)
def test_a_blocked_alert_says_what_is_tried_and_where_to_look(
    tmp_path: Path, reason: str, detail: str, text: str
) -> None:
    facts = {"verdict": "wait", "reason": reason, "detail": detail}
    event = Event(7, NOW, 3, None, "decision", "TrainingInferenceDown", "demo", "server", facts)
    disks = {"/data": {"free": 0.0, "size": 98304.0, "runs": ["demo"]}}
    fault = fault_facts({"seen": {"disks": disks}})
    one = Notification(1, "phone", "blocked", event, fault=fault)
    found = advice(one, make_setup(tmp_path, "demo/trainer"), (), Path("/s/logs"))
    assert found.startswith(text)
    assert bool(found) == bool(text)
    if reason == "disk_unusable":
        assert found.endswith("Once the disk is usable, the remediator restarts it.")


UNTIL_RESUME = "No action starts until an operator runs `resume`."


@pytest.mark.parametrize(
    ("holds", "text"),
    [
        (
            [Hold(run="demo", until=NOW + 3600)],
            "Actions start again at 09:00 UTC, or sooner once an operator runs `resume`.",
        ),
        ([Hold(run="demo")], UNTIL_RESUME),
        ([Hold(until=NOW + 3600), Hold(run="demo")], UNTIL_RESUME),
        ([], "Actions start again at the end of the hold, or once an operator runs `resume`."),
    ],
)
def test_a_hold_with_an_end_says_when_actions_start_again(
    tmp_path: Path, holds: list[Hold], text: str
) -> None:
    facts = {"verdict": "wait", "reason": "held", "detail": "by root"}
    event = Event(7, NOW, 3, None, "decision", "TrainingStepStalled", "demo", "trainer", facts)
    one = Notification(1, "phone", "blocked", event)
    advised = advice(one, make_setup(tmp_path, "demo/trainer"), (), holds=holds)
    assert advised == text
    (item,) = build_message([one], instance="b", mode="act", holds=holds).items
    until = {UNTIL_RESUME: "until the hold is lifted"}.get(text, "until 09:00 UTC")
    assert until in item.values["Who acts"] or not holds


def test_a_command_that_is_too_long_is_left_out_as_a_whole(tmp_path: Path) -> None:
    long = {"argv": ("python", "a" * VALUE_LENGTH)}
    one = call(*NO_CHECKPOINT)
    one = replace(one, advice=advised(tmp_path, one, **long))
    (item,) = build_message([one], instance="b", mode="act").items
    assert "start it again with `--checkpoints FOLDER` added" in item.values["What to do"]
    assert "trainwarden run" not in item.values["What to do"]
    assert "refuse" not in item.values["What"]


def test_a_hold_is_in_words_for_a_reader_who_was_woken() -> None:
    one = replace(call(*LOOP), advice="Do this.")
    (item,) = build_message([one], instance="b", mode="act").items
    assert item.title == "restarted again and again, operator needed"
    assert "hold" not in item.values["What"]
    assert item.values["What to do"] == "Do this."


def test_a_full_disk_is_named_with_its_room_and_what_shows_the_cause(tmp_path: Path) -> None:
    """The last end of the run is that of a later start, which read a damaged checkpoint."""
    about = {"free": 0.0, "size": 98304.0, "runs": ["demo"]}
    evidence = {
        "seen": {
            "disks": {
                "/data/my run": about,
                "/": {"free": 5e9, "size": 9e9, "runs": ["demo"]},
                "/other": {"free": 0.0, "size": 9e9, "runs": ["other"]},
            },
            "workers": {
                "demo/trainer": {"expected": 1, "last_exit_at": NOW - 9, "last_exit_code": 1}
            },
        },
        "logs": [
            {
                "path": "/logs/demo.log",
                "lines": ["OSError: [Errno 28] No space left on device", "ValueError: cut off"],
            }
        ],
    }
    one = call("TrainingDiskFilling", "hold", worker="")
    one = replace(one, fault=fault_facts(evidence), alert_started_at=NOW)
    one = replace(one, advice=advised(tmp_path, one))
    hold = Hold("", who="root")
    (item,) = build_message([one], instance="host", mode="act", holds=[hold]).items
    assert item.values["What to do"].startswith(
        "/data/my run has 0 B of 96.0 KiB free. `du -xh --max-depth 2 '/data/my run' | sort -h"
    )
    assert item.values["Last error"] == "OSError: [Errno 28] No space left on device"
    assert "Cause" not in item.values
    assert item.values["Who acts"] == "You, now"
    assert "Last error" not in item_of(replace(one, fault=replace(one.fault, disk_error="")))
    assert "read-only" not in item_of(one)["What to do"]


@pytest.mark.parametrize(
    ("disks", "checkpoints"),
    [
        ({}, "/data/my out"),
        ({"/data": {"runs": ["demo"], "checkpoints_left": {"demo": 0.0}}}, "/data/my out"),
        ({}, None),
    ],
)
def test_a_full_disk_that_the_exporter_did_not_show_is_named_by_the_folder_of_the_run(
    tmp_path: Path, disks: dict[str, Any], checkpoints: str | None
) -> None:
    one = call("TrainingDiskFilling", "hold", worker="")
    one = replace(one, fault=fault_facts({"seen": {"disks": disks}} if disks else {}))
    text = advised(tmp_path, one, checkpoints=checkpoints)
    if checkpoints is None:
        assert text == ""
        return
    assert text == (
        "The disk of /data/my out is full. `du -xh --max-depth 2 '/data/my out' | sort -h | tail"
        " -20` shows what fills it. Delete or move away the oldest checkpoints, never the newest"
        " complete one; the alert ends a minute after there is room."
    )


def test_a_disk_that_is_read_only_is_named(tmp_path: Path) -> None:
    disk = {"read_only": True, "runs": ["demo"]}
    one = call("TrainingDiskReadOnly", "hold", worker="")
    one = replace(one, fault=fault_facts({"seen": {"disks": {"/data": disk}}}))
    assert advised(tmp_path, one).startswith("/data is mounted read-only. `dmesg ")


def item_of(one: Notification) -> Any:
    (item,) = build_message([one], instance="host", mode="act").items
    return item.values
