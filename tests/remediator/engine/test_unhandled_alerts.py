"""A critical alert that no playbook handles rings once if nobody else does, and its end too."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.fakes import FakeObserver
from tests.remediator.samples import NOW, ROLLOUT, make_alert, make_setup, make_worker
from tests.remediator.stage import going_on

from trainwarden_exporter.logs.config import LogConfig
from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import parse_destinations
from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.engine import unhandled_alerts
from trainwarden_remediator.engine.unhandled_alerts import (
    BLIND,
    NOTIFIED_OTHERWISE,
    RESOLVE_SECONDS,
    UnhandledAlerts,
)
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Outcome
from trainwarden_remediator.model import Decision, Reason, Verdict
from trainwarden_remediator.notify.classification import notification_event_of, subject_of
from trainwarden_remediator.notify.messages import Notification, build_message
from trainwarden_remediator.observation.model import ExporterState, RunState, WorkerState

PROJECT = Path(__file__).resolve().parents[3]
LOST = {"alertname": "TrainingGpuLost", "severity": "critical", "gpu": "0"}
GONE = {
    "alertname": "TrainingWorkerGone",
    "severity": "critical",
    "run": "demo",
    "worker": "other",
    "remediation": "start_missing_worker",
}
STALL = {"alertname": "TrainingStepStalled", "severity": "warning", "run": "demo"}
DOG = {"alertname": "TrainingWatchdog", "severity": "none"}
RINGS = NotifySettings.model_validate(
    {"receivers": [{"name": "phone", "kind": "ntfy", "url": "https://ntfy.sh/x"}]}
)


OWN, ANOTHER = "trainwarden-remediator", "trainwarden-remediator-2"


def status(**receivers: dict[str, Any]) -> bytes:
    webhook = {"webhook_configs": [{"url": "<secret>"}]}
    shown = [
        {"name": "on-call", **receivers.get("on_call", {})},
        {"name": "nobody"},
        {"name": OWN, **webhook, **receivers.get("own", {})},
        {"name": ANOTHER, **receivers.get("another", {})},
    ]
    return json.dumps({"config": {"original": yaml.safe_dump({"receivers": shown})}}).encode()


class FakeAlertmanager:
    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.status = status()
        self.error: Exception | None = None
        self.add(DOG)

    def add(self, labels: dict[str, str], *, state: str = "active", **more: Any) -> None:
        at = "2027-01-15T08:00:00.000Z"
        muted = {"inhibited": ["a"]}.get(state, [])
        self.alerts.append(
            {
                "annotations": {},
                "fingerprint": sha256(repr(labels).encode()).hexdigest()[:16],
                "labels": labels,
                "receivers": [{"name": "on-call"}] + [{"name": OWN}] * ("remediation" in labels),
                "startsAt": at,
                "updatedAt": at,
                "status": {
                    "state": "suppressed" if muted else state,
                    "silencedBy": [],
                    "inhibitedBy": muted,
                },
                **more,
            }
        )

    async def fetch(self, _: Sequence[str]) -> bytes:
        if self.error:
            raise self.error
        return json.dumps(self.alerts).encode()

    async def fetch_status(self) -> bytes:
        return self.status


class Watch:
    def __init__(self, folder: Path, journal: Journal, clock: FakeClock, **config: Any) -> None:
        self.alertmanager = FakeAlertmanager()
        self.journal, self.clock = journal, clock
        self.observer = FakeObserver()
        workers = ("demo/rollout-0", "demo/trainer", "search/rollout-0")
        setup = make_setup(folder, *workers, **config)
        self.setup: Setup = replace(setup, config=setup.config.model_copy(update={"notify": RINGS}))

    def watch_log(self, path: Path) -> None:
        """Gives the run demo a log."""
        run, *others = self.setup.exporter_config.runs
        logs = (LogConfig(name="trainer", files=(str(path),)),)
        runs = (run.model_copy(update={"logs": logs}), *others)
        exporter = self.setup.exporter_config.model_copy(update={"runs": runs})
        self.setup = replace(self.setup, exporter_config=exporter)
        asked = self.alertmanager.fetch, self.alertmanager.fetch_status
        self.built.reconfigure(self.setup, *asked, self.observer)

    def build(self) -> UnhandledAlerts:
        asked = self.alertmanager.fetch, self.alertmanager.fetch_status
        built = UnhandledAlerts(
            self.journal, self.setup, *asked, observer=self.observer, clock=self.clock
        )
        built.received_through(OWN)
        self.built = built
        return built

    def recorded(self) -> list[tuple[str, str]]:
        return [
            (event.kind, event.alert)
            for event in reversed(self.journal.newest_events(100))
            if event.kind.startswith("unhandled") or event.kind == "stalled"
        ]


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> Start:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    clock = FakeClock()

    @asynccontextmanager
    async def started(**config: Any) -> AsyncIterator[Watch]:
        journal = Journal(tmp_path / "journal.db", clock=clock.now)
        watch = Watch(tmp_path, journal, clock, **config)
        async with going_on(watch.build().run()):
            yield watch
        journal.close()

    return started


BEGUN = ("unhandled", "TrainingGpuLost")
ENDED = ("unhandled_ended", "TrainingGpuLost")


async def test_it_is_recorded_once_and_its_end_once(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(LOST)
        await watch.clock.advance(15)
        assert watch.recorded() == []  # what inhibits it may come a moment later
        await watch.clock.advance(3000)
        assert watch.recorded() == [BEGUN]
        watch.alertmanager.alerts.pop()
        await watch.clock.advance(RESOLVE_SECONDS - 20)
        assert watch.recorded() == [BEGUN]
        await watch.clock.advance(3000)
        assert watch.recorded() == [BEGUN, ENDED]


DAMAGED = {"alertname": "TrainingCheckpointDamaged", "severity": "critical", "run": "demo"}
PROBLEM = "step-2640.ckpt: the directory at its end is missing (truncated)"


async def test_the_message_names_the_damaged_checkpoint_and_the_damage(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.observer.runs["demo"] = RunState(resume_problem=PROBLEM)
        watch.alertmanager.add(DAMAGED)
        await watch.clock.advance(60)
        (event,) = watch.journal.newest_events(1)
        message = build_message(
            [Notification(1, "phone", "unhandled", event)], instance="h", mode="act"
        )
        assert PROBLEM in message.items[0].values["What"]


async def test_the_message_has_what_the_alert_says(start: Start) -> None:
    """Of a NaN, the step before it and the checkpoint to go back to."""
    watch: Watch
    async with start() as watch:
        description = "The last finite one was\nseen at step 57. \x1b[2J"
        watch.alertmanager.add(LOST, annotations={"description": description})
        await watch.clock.advance(60)
        (event,) = [one for one in watch.journal.newest_events(9) if one.kind == "unhandled"]
        assert (
            "GpuLost: The last finite one was seen at step 57. \N{REPLACEMENT CHARACTER}[2J; the"
            in (describe(event))
        )
        watch.alertmanager.add({**LOST, "gpu": "9"}, annotations={"description": 9_000 * "x"})
        await watch.clock.advance(60)
        assert len(describe(watch.journal.newest_events(1)[0])) < 600


NAN = {
    "alertname": "TrainingNotFinite",
    "severity": "critical",
    "run": "demo",
    "log": "trainer",
    "name": "loss",
}


@pytest.mark.parametrize("proved", [25.0, 30.0])
async def test_the_step_until_which_a_loss_was_finite_is_that_of_the_log(
    start: Start, proved: float
) -> None:
    """The alert knows it to some scrapes: too early by the steps in between."""
    watch: Watch
    async with start() as watch:
        watch.observer.runs["demo"] = RunState(
            finite_until={("trainer", "loss"): 29.0},
            proved_step=proved,
            proved_checkpoint="/out/newest.pt",
        )
        watch.alertmanager.add(NAN, annotations={"description": "the last finite one at step 19."})
        await watch.clock.advance(60)
        (event,) = watch.journal.newest_events(1)
        message = build_message(
            [Notification(1, "phone", "unhandled", event)], instance="h", mode="act"
        )
        what = message.items[0].values["What"]
        assert "step 29" in what
        assert "step 19" not in what
        assert "`trainwarden checkpoints demo`" in what
        assert ("29 or earlier, as /out/newest.pt" in what) == (proved < 29)
        assert what.endswith("`trainwarden runbook TrainingNotFinite` says what to do")


async def test_of_a_run_without_a_checkpoint_no_message_names_one_to_go_back_to(
    start: Start,
) -> None:
    watch: Watch
    async with start() as watch:
        lost = {("trainer", "loss"): 29.0}
        watch.observer.runs["demo"] = RunState(finite_until=lost, checkpoints_seen_at=1.0)
        watch.alertmanager.add(NAN)
        await watch.clock.advance(60)
        (event,) = watch.journal.newest_events(1)
        assert describe(event).find("until step 29: stop the run; no complete checkpoint of") > 0
        assert "go back" not in describe(event)
    assert RunState(finite_until=lost, checkpoints_seen_at=1.0).spoilt == {
        "finite_until": 29.0,
        "nothing_saved": True,
    }


@pytest.mark.parametrize(("failures", "known"), [(2, True), (3, False)])
async def test_the_step_before_a_nan_is_asked_for_again_if_the_exporter_answers_late(
    start: Start, monkeypatch: pytest.MonkeyPatch, failures: int, *, known: bool
) -> None:
    watch: Watch
    async with start() as watch:
        watch.observer.runs["demo"] = RunState(finite_until={("trainer", "loss"): 29.0})
        answer, left = watch.observer.observe, [ObservationError("late")] * failures

        async def observe() -> ExporterState:
            if left:
                raise left.pop()
            return await answer()

        monkeypatch.setattr(watch.observer, "observe", observe)
        watch.alertmanager.add(NAN, annotations={"description": "All is lost."})
        await watch.clock.advance(60)
        (event,) = watch.journal.newest_events(1)
        assert ("until step 29" in describe(event)) == known
        assert ("All is lost" in describe(event)) != known


FAILED = "ValueError: the batch is empty"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("step 1\nstep 2 loss 0.5\nstep 3 loss nan\n", {"Last lines": "step 1 | step 2 loss 0.5"}),
        (f"step 1\nTraceback (most recent call last):\n{FAILED}\n", {"Last error": FAILED}),
        (None, {}),
    ],
)
async def test_the_message_names_the_log_of_the_run_and_how_it_ends(
    start: Start, tmp_path: Path, written: str | None, shown: dict[str, str]
) -> None:
    log = tmp_path / "train.log"
    if written is not None:
        log.write_text(written)
    watch: Watch
    async with start() as watch:
        watch.watch_log(log)
        watch.alertmanager.add(NAN)
        await watch.clock.advance(60)
        (event,) = watch.journal.newest_events(1)
        (item,) = build_message(
            [Notification(1, "phone", "unhandled", event)], instance="h", mode="act"
        ).items
        assert item.values["Worker"] == "demo"
        assert item.values.get("Log", "") == (str(log) if written else "")
        assert {"Last lines", "Last error"} & item.values.keys() == shown.keys()
        assert all(item.values[name].startswith(text) for name, text in shown.items())


async def test_the_log_of_the_trainer_is_quoted_and_of_another_worker_only_without_one(
    start: Start, tmp_path: Path
) -> None:
    """An alert about a run is about its training; the other worker may have failed long before."""
    logs = []
    for worker, text in (("rollout-0", f"{FAILED}\n"), ("trainer", "step 7\n")):
        (tmp_path / f"{worker}.log").write_text(text)
        file = (str(tmp_path / f"{worker}.log"),)
        logs.append(LogConfig(name=worker, files=file, worker=worker))
    watch: Watch
    async with start() as watch:
        asked = watch.alertmanager.fetch, watch.alertmanager.fetch_status
        for shown, key in ((logs, "last_lines"), (logs[:1], "last_error")):
            run, *others = watch.setup.exporter_config.runs
            runs = (run.model_copy(update={"logs": tuple(shown)}), *others)
            config = watch.setup.exporter_config.model_copy(update={"runs": runs})
            setup = replace(watch.setup, exporter_config=config)
            watch.built.reconfigure(setup, *asked, watch.observer)
            watch.alertmanager.add({**NAN, "name": key})
            await watch.clock.advance(60)
            (event,) = watch.journal.newest_events(1)
            assert event.facts["log"] == str(tmp_path / f"{shown[-1].worker}.log")
            assert key in event.facts


async def test_a_message_does_not_wait_for_a_log_whose_disk_does_not_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(unhandled_alerts, "read_log_facts", lambda *_: answers.wait(60))
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(NAN)
        await watch.clock.advance(60)
        assert watch.recorded() == [("unhandled", "TrainingNotFinite")]
        assert "log" not in watch.journal.newest_events(1)[0].facts
    answers.set()


async def test_the_help_of_a_message_is_not_cut_off(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(NAN, annotations={"description": 500 * "x"})
        await watch.clock.advance(60)
        (event,) = watch.journal.newest_events(1)
        message = build_message(
            [Notification(1, "phone", "unhandled", event)], instance="h", mode="act"
        )
        assert message.items[0].values["What"].endswith("says what to do")


async def test_a_damaged_checkpoint_rings_without_the_exporter_too(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.observer.blind = ObservationError("no answer")
        watch.alertmanager.add(DAMAGED)
        await watch.clock.advance(60)
        assert watch.recorded() == [("unhandled", "TrainingCheckpointDamaged")]


async def test_a_remediator_that_starts_again_records_it_no_second_time(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(LOST)
        await watch.clock.advance(60)
    async with start() as watch:
        watch.alertmanager.add(LOST)
        await watch.clock.advance(60)
        assert watch.recorded() == [BEGUN]
        watch.alertmanager.alerts.pop()
        await watch.clock.advance(RESOLVE_SECONDS + 30)
        assert watch.recorded() == [BEGUN, ENDED]


async def test_a_start_of_the_whole_stack_is_no_end(start: Start) -> None:
    """Alertmanager has forgotten it, and Prometheus fires it again with another start."""
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(LOST)
        await watch.clock.advance(3000)
    async with start() as watch:
        await watch.clock.advance(RESOLVE_SECONDS - 60)
        watch.alertmanager.add(LOST, startsAt="2027-01-15T09:00:00.000Z")
        await watch.clock.advance(3000)
        assert watch.recorded() == [BEGUN]


async def test_it_has_not_ended_while_another_of_its_name_fires(start: Start) -> None:
    """The message could not say which of them has ended."""
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(LOST)
        watch.alertmanager.add({**LOST, "gpu": "1"})
        await watch.clock.advance(60)
        del watch.alertmanager.alerts[1]
        await watch.clock.advance(3000)
        assert watch.recorded() == [BEGUN, BEGUN]
        watch.alertmanager.alerts.pop()
        await watch.clock.advance(3000)
        assert watch.recorded() == [BEGUN, BEGUN, ENDED, ENDED]


@pytest.mark.parametrize("name", sorted(BLIND))
async def test_it_has_not_ended_while_the_host_is_not_watched(start: Start, name: str) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(LOST)
        await watch.clock.advance(60)
        watch.alertmanager.alerts.pop()
        watch.alertmanager.add({"alertname": name, "severity": "warning"})
        await watch.clock.advance(3000)
        assert watch.recorded() == [BEGUN]
        watch.alertmanager.alerts.pop()
        await watch.clock.advance(RESOLVE_SECONDS - 20)
        assert watch.recorded() == [BEGUN]
        await watch.clock.advance(60)
        assert watch.recorded() == [BEGUN, ENDED]


async def test_it_has_not_ended_while_prometheus_or_alertmanager_is_dead(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(LOST)
        await watch.clock.advance(60)
        watch.alertmanager.alerts.clear()
        await watch.clock.advance(600)
        watch.alertmanager.error = ObservationError("no answer")
        await watch.clock.advance(600)
        assert watch.recorded() == [BEGUN]


@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ({**LOST, "severity": "warning"}, {}),
        (LOST, {"state": "inhibited"}),
        (LOST, {"state": "suppressed"}),
        ({**LOST, "alertname": "TrainingRemediationGaveUp"}, {}),
        (GONE, {}),  # a playbook answers it
    ],
)
async def test_nothing_else_is_recorded(
    start: Start, labels: dict[str, str], more: dict[str, str]
) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add(labels, **more)
        await watch.clock.advance(600)
        assert watch.recorded() == []


async def test_a_stall_that_waits_for_its_proof_is_recorded_once_after_two_minutes(
    start: Start,
) -> None:
    watch: Watch
    async with start(mode="act") as watch:
        watch.alertmanager.add(STALL)
        watch.alertmanager.add({**STALL, "run": "of-another-host"})
        watch.alertmanager.add({**STALL, "run": "search"})  # no trainer of it may be restarted
        await watch.clock.advance(110)
        assert watch.recorded() == []
        await watch.clock.advance(3000)
        assert watch.recorded() == [("stalled", "TrainingStepStalled")]
        (event,) = [one for one in watch.journal.newest_events(9) if one.kind == "stalled"]
        assert (event.run, notification_event_of(event)) == ("demo", "stalled")
        assert "once its stacks show that it is stuck" in describe(event)
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(3000)
        assert len(watch.recorded()) == 1


def moved(at: float, **state: Any) -> RunState:
    return RunState(**{"step": 812.0, "progress_at": at, "trainer_processes": 1.0, **state})


@pytest.mark.parametrize(
    ("run", "acts", "reported"),
    [
        (moved(NOW + 420), False, True),
        (moved(NOW - 60), False, False),
        (moved(NOW + 420, finished=True), False, False),
        (moved(NOW + 420, trainer_processes=0.0), False, False),
        (moved(NOW + 420), True, False),
    ],
    ids=["goes on", "stands still", "has finished", "has ended", "was restarted"],
)
async def test_the_end_of_a_stall_names_the_stall_that_it_ends(
    start: Start, run: RunState, *, acts: bool, reported: bool
) -> None:
    """What the remediator has done, or that the run has finished, is notified itself."""
    watch: Watch
    async with start(mode="act") as watch:
        watch.alertmanager.add(STALL)
        await watch.clock.advance(420)
        if acts:
            watch.journal.record_alerts([make_alert()])
            action = watch.journal.record_intent(1, ROLLOUT, "restart", [])
            watch.journal.record_result(action, "done", started_by="trainwarden", processes=[1])
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(10)
        assert len(watch.recorded()) == 1
        watch.observer.runs["demo"] = run
        await watch.clock.advance(3000)
        begun, *ended = [e for e in watch.journal.newest_events(9)[::-1] if e.kind == "stalled"]
        assert len(ended) == reported
        if not reported:
            return
        assert subject_of(begun) != subject_of(ended[0])  # within the hour, too
        calls = [Notification(1, "phone", "stalled", one) for one in (begun, *ended)]
        first, last = (build_message([one], instance="b", mode="act") for one in calls)
        assert first.items[0].values["What"].startswith("TrainingStepStalled of 08:00 UTC: ")
        assert last.title == "a run goes on, its stall has ended"
        assert last.items[0].values["What"] == (
            "TrainingStepStalled of 08:00 UTC has ended after 7 min 10 s, at step 812:"
            " the run goes on, and the remediator has not acted"
        )
        assert last.items[0].values["Who acts"] == "Nobody needs to"
        together = build_message(calls, instance="b", mode="act")
        assert together.title == last.title
        assert not together.calls


@pytest.mark.parametrize(
    ("progress_at", "recorded"), [(NOW - 60, 1), (NOW + 1000, 2)], ids=["the same", "another"]
)
async def test_a_start_of_the_whole_stack_announces_the_same_standstill_no_second_time(
    start: Start, progress_at: float, recorded: int
) -> None:
    watch: Watch
    async with start(mode="act") as watch:
        watch.observer.runs["demo"] = moved(NOW - 60)
        watch.alertmanager.add(STALL)
        await watch.clock.advance(3000)
        assert len(watch.recorded()) == 1
    async with start(mode="act") as watch:
        watch.observer.runs["demo"] = moved(progress_at)
        watch.alertmanager.add(STALL, startsAt="2027-01-15T08:50:00.000Z")
        await watch.clock.advance(3000)
        assert len(watch.recorded()) == recorded
        watch.observer.runs["demo"] = moved(NOW + 6000)
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(100)
        assert len(watch.recorded()) == recorded + 1
        begun = "08:00" if recorded == 1 else "08:50"
        last = describe(watch.journal.newest_events(1)[0])
        assert last.startswith(f"TrainingStepStalled of {begun} UTC has ended")


async def test_a_hang_that_is_not_proved_for_a_while_has_not_ended(start: Start) -> None:
    """The warning also ends as the critical alert begins, or as the stacks prove no hang."""
    watch: Watch
    async with start(mode="act") as watch:
        watch.observer.runs["demo"] = moved(NOW - 60)
        watch.alertmanager.add(STALL)
        await watch.clock.advance(300)
        watch.alertmanager.alerts[1:] = []
        watch.alertmanager.add({**STALL, "severity": "critical", "remediation": "x"})
        await watch.clock.advance(300)
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(300)
        assert len(watch.recorded()) == 1
        watch.observer.runs["demo"] = moved(NOW + 900)
        await watch.clock.advance(10)
        assert len(watch.recorded()) == 2
        assert "has ended after 14 min 50 s, at step 812" in describe(
            watch.journal.newest_events(1)[0]
        )


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            RunState(stuck=True, waits="process 7 of trainer waits for a queue at a.py:1"),
            "process 7 of trainer waits for a queue at a.py:1; the remediator",
        ),
        (
            RunState(waits="process 7 of trainer runs", restart_limit=1800),
            "its limit is at most 30 min without a step; the remediator",
        ),
        (
            RunState(progress_at=NOW - 60, restart_limit=1800),
            (
                "a silent run is left alone until 08:29 UTC, unless its stacks prove a hang or "
                "another fault shows; then the remediator restarts the run; "
                '`with trainwarden.phase("evaluating"):` around an evaluation avoids this message'
            ),
        ),
        (
            RunState(progress_at=NOW - 60, restart_limit=1800, stuck=True, waits="it waits"),
            "it waits; the remediator restarts the run once",
        ),
        (
            RunState(progress_at=NOW - 60, restart_limit=math.inf),
            "the remediator restarts the run once",
        ),
        (RunState(restart_limit=math.inf), "the remediator restarts"),
    ],
    ids=["stuck", "not proved", "with its time", "proved", "no pace", "no limit"],
)
async def test_a_stall_is_announced_with_what_is_known_of_its_cause(
    start: Start, run: RunState, text: str
) -> None:
    watch: Watch
    async with start(mode="act") as watch:
        watch.observer.runs["demo"] = run
        watch.observer.blind = ObservationError("the exporter does not answer")
        watch.alertmanager.add(STALL)
        await watch.clock.advance(200)
        assert watch.recorded() == []
        watch.observer.blind = None
        watch.observer.runs["demo"] = replace(run, undecided=True)
        await watch.clock.advance(100)
        assert watch.recorded() == []
        watch.observer.runs["demo"] = run
        await watch.clock.advance(10)
        (event,) = [one for one in watch.journal.newest_events(9) if one.kind == "stalled"]
        assert describe(event).startswith(f"TrainingStepStalled of 08:00 UTC: {text}")


@pytest.mark.parametrize("run", [RunState(last_step_made=True), RunState(trainer_processes=0)])
async def test_no_restart_is_announced_of_a_run_that_is_dead_or_at_its_end(
    start: Start, run: RunState
) -> None:
    watch: Watch
    async with start(mode="act") as watch:
        watch.observer.runs["demo"] = run
        watch.alertmanager.add(STALL)
        await watch.clock.advance(300)
        assert watch.recorded() == []
        watch.observer.runs["demo"] = RunState(trainer_processes=1)
        await watch.clock.advance(10)
        assert watch.recorded() == [("stalled", "TrainingStepStalled")]


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("alert", ["TrainingNotFinite", "TrainingGpuLost"])
async def test_the_end_of_an_alert_of_a_stopped_run_says_that_an_operator_stopped_it(
    start: Start, alert: str, *, started: bool
) -> None:
    """The run may have been started again before the end is reported; a stop mends no GPU."""
    watch: Watch
    async with start() as watch:
        asked = watch.alertmanager.fetch, watch.alertmanager.fetch_status
        watch.alertmanager.add({"alertname": alert, "severity": "critical", "run": "ended"})
        await watch.clock.advance(60)
        stop = replace(watch.setup.announced, stopped=frozenset({WorkerKey("ended", "trainer")}))
        stopped = replace(watch.setup, announced=stop, stopped=stop.stopped)
        watch.built.reconfigure(stopped, *asked, watch.observer)
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(40)
        early = [e for e in watch.journal.newest_events(9) if e.kind == "unhandled_ended"]
        assert bool(early) == (alert == "TrainingNotFinite"), "a run that is stopped stays so"
        await watch.clock.advance(260)
        if started:
            watch.built.reconfigure(watch.setup, *asked, watch.observer)
        await watch.clock.advance(400)
        (event,) = [e for e in watch.journal.newest_events(9) if e.kind == "unhandled_ended"]
        why = ", and has not come back for 10 min"
        if early:
            why = ", and has not come back for 20 s: an operator has stopped it"
        assert describe(event) == f"{alert} of 08:00 UTC has ended{why}"


@pytest.mark.parametrize("kind", ["stopped", "finished"])
async def test_what_came_after_the_end_of_an_alert_has_not_ended_it(
    start: Start, kind: str
) -> None:
    """As a stop of what had been healed; it will not come back all the same."""
    watch: Watch
    async with start() as watch:
        watch.alertmanager.add({**NAN, "run": "ended"})
        await watch.clock.advance(60)
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(60)
        if kind == "finished":
            watch.observer.runs["ended"] = RunState(finished=True)
        else:
            stopped = replace(watch.setup, stopped=frozenset({WorkerKey("ended", "trainer")}))
            asked = watch.alertmanager.fetch, watch.alertmanager.fetch_status
            watch.built.reconfigure(stopped, *asked, watch.observer)
        await watch.clock.advance(20)
        (event,) = [e for e in watch.journal.newest_events(9) if e.kind == "unhandled_ended"]
        assert re.search(r"has ended, and has not come back for \d+ min( \d+ s)?$", describe(event))


@pytest.mark.parametrize(
    ("dismissed", "why"),
    [
        (None, "its run has finished"),
        ("finished", "its run has finished"),
        ("failed", "it had failed, and was dismissed"),
    ],
)
async def test_the_end_of_an_alert_names_the_end_of_its_run_and_not_what_dismissed_it(
    start: Start, dismissed: str | None, why: str
) -> None:
    watch: Watch
    async with start() as watch:
        asked = watch.alertmanager.fetch, watch.alertmanager.fetch_status
        watch.alertmanager.add({**NAN, "run": "ended"})
        await watch.clock.advance(60)
        if dismissed is None:
            lost = {("trainer", "loss"): 39.0}
            watch.observer.runs["ended"] = RunState(finished=True, finite_until=lost)
        else:
            key = WorkerKey("ended", "trainer")
            known = AnnouncedRuns(stopped=frozenset({key}), dismissed={key: dismissed})
            setup = replace(watch.setup, announced=known, stopped=known.stopped)
            watch.built.reconfigure(setup, *asked, watch.observer)
        watch.alertmanager.alerts[1:] = []
        await watch.clock.advance(60)
        (event,) = [e for e in watch.journal.newest_events(9) if e.kind == "unhandled_ended"]
        assert describe(event).endswith(f"has ended, and has not come back for 20 s: {why}")
        call = Notification(1, "phone", "unhandled_ended", event)
        message = build_message([call], instance="b", mode="act")
        acts = "Nobody needs to" if dismissed else "You, now"
        assert message.items[0].values["Who acts"] == acts


@pytest.mark.parametrize(
    ("alert", "rings"), [("TrainingStepStalled", False), ("TrainingCheckpointDamaged", True)]
)
async def test_what_an_operator_has_stopped_rings_for_nothing_that_ends_with_it(
    start: Start, alert: str, *, rings: bool
) -> None:
    """After a start of the stack, an alert of the run may fire from what was seen before."""
    watch: Watch
    async with start() as watch:
        asked = watch.alertmanager.fetch, watch.alertmanager.fetch_status
        stopped = frozenset({WorkerKey("ended", "trainer")})
        setup = replace(watch.setup, stopped=stopped)
        watch.built.reconfigure(setup, *asked, watch.observer)
        watch.alertmanager.add({"alertname": alert, "severity": "critical", "run": "ended"})
        await watch.clock.advance(120)
        assert watch.recorded() == [("unhandled", alert)] * rings


async def test_a_run_that_is_stopped_has_the_command_that_continues_its_process(
    start: Start,
) -> None:
    watch: Watch
    async with start(mode="act") as watch:
        key = WorkerKey("demo", "trainer")
        watch.observer.runs["demo"] = RunState(waits="process 27823 of trainer is stopped")
        watch.observer.workers[key] = make_worker(stopped=1)
        watch.alertmanager.add(STALL)
        await watch.clock.advance(200)
        (event,) = [one for one in watch.journal.newest_events(9) if one.kind == "stalled"]
        assert describe(event).endswith("it is stopped: `kill -CONT 27823` continues it")


async def test_a_run_that_waits_at_a_prompt_is_not_announced_to_be_restarted(start: Start) -> None:
    watch: Watch
    async with start(mode="act") as watch:
        watch.observer.runs["demo"] = RunState(at_prompt=True, waits="process 7 of trainer waits")
        watch.alertmanager.add(STALL)
        await watch.clock.advance(200)
        (event,) = [one for one in watch.journal.newest_events(9) if one.kind == "stalled"]
        halted = "the remediator leaves it alone: it waits for you at a prompt"
        text = f"TrainingStepStalled of 08:00 UTC: {halted}"
        assert describe(event) == text
        call = Notification(1, "phone", "stalled", event)
        message = build_message([call], instance="b", mode="act")
        assert message.title == "a run stands still, as it was halted by hand"
        assert message.items[0].values["Who acts"] == "You, now"
        assert message.items[0].values["What"] == text
        assert not message.urgent


async def test_a_stall_is_not_announced_where_the_remediator_only_observes(start: Start) -> None:
    watch: Watch
    async with start(mode="observe") as watch:
        watch.alertmanager.add(STALL)
        await watch.clock.advance(3000)
        assert watch.recorded() == []


async def test_where_alertmanager_has_a_destination_that_one_rings(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        watch.alertmanager.status = status(on_call={"slack_configs": [{"api_url": "<secret>"}]})
        watch.alertmanager.add(LOST)
        await watch.clock.advance(600)
        assert watch.recorded() == []
        watch.alertmanager.status = status()
        await watch.clock.advance(20)
        assert watch.recorded() == [BEGUN]


@pytest.mark.parametrize(
    ("decision", "run", "text"),
    [
        ((Verdict.REFUSE, "unknown_target"), "demo", "the remediator may not restart it (why); "),
        ((Verdict.REFUSE, "unknown_target"), "other", None),
        ((Verdict.WAIT, "observe_mode"), "demo", "observes: `trainwarden approve 1` lets it act "),
        ((Verdict.WAIT, "observe_mode"), "other", None),
        ((Verdict.WAIT, "cooldown"), "demo", None),
        ((Verdict.ACT, "restart"), "demo", None),
    ],
)
async def test_what_nobody_restarts_on_this_host_is_unhandled(
    start: Start, decision: tuple[Verdict, Reason], run: str, text: str | None
) -> None:
    """As of a run with `--restart never`; not a run of another host at the same Alertmanager."""
    watch: Watch
    async with start() as watch:
        labels = {**GONE, "run": run}
        does = "The remediator starts it"
        watch.alertmanager.add(labels, annotations={"description": does})
        fingerprint = watch.alertmanager.alerts[-1]["fingerprint"]
        alert = replace(make_alert(starts_at=NOW), fingerprint=fingerprint, labels=labels)
        watch.journal.record_alerts([alert])
        (incident,) = watch.journal.open_incidents()
        watch.journal.record_decisions([(incident, Decision(*decision, detail="why"))])
        await watch.clock.advance(60)
        events = [one for one in watch.journal.newest_events(9) if one.kind == "unhandled"]
        assert len(events) == (text is not None)
        assert all(text in describe(event) for event in events if text)
        assert all(does not in describe(event) for event in events)


@pytest.mark.parametrize("worker", ["trainer", "rollout-0"])
@pytest.mark.parametrize("outcome", ["healed", "not_healed", None])
@pytest.mark.parametrize("ended", [False, True])
async def test_a_stall_of_a_trainer_with_a_next_attempt_rings_for_nobody(
    start: Start, worker: str, outcome: Outcome | None, *, ended: bool
) -> None:
    """Also while the alert of its dead process has ended for a moment, as scrapes were lost."""
    watch: Watch
    async with start() as watch:
        labels = {**GONE, "worker": worker}
        alert = replace(make_alert(starts_at=NOW), labels=labels)
        watch.journal.record_alerts([alert])
        (incident,) = watch.journal.open_incidents()
        key = WorkerKey("demo", worker)
        action = watch.journal.record_intent(incident.id, key, "restart", ())
        if outcome is not None:
            watch.journal.record_result(action, "done")
            watch.journal.record_outcome(action, outcome)
        reason: Reason = "resolved" if ended else "cooldown"
        verdict = Verdict.REFUSE if ended else Verdict.WAIT
        if ended:
            watch.journal.record_alerts([replace(alert, firing=False)])
        watch.journal.record_decisions([(incident, Decision(verdict, reason))])
        watch.alertmanager.add({**STALL, "severity": "critical"})
        rings = worker != "trainer" or (ended and outcome != "not_healed")
        rung = [("unhandled", "TrainingStepStalled")]
        await watch.clock.advance(120)
        assert watch.recorded() == rung * rings
        await watch.clock.advance(600)
        assert watch.recorded() == rung * (rings or ended), "nobody has acted on it since"


async def test_the_receiver_of_the_remediator_with_another_destination_rings(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        own = {"webhook_configs": [{"url": "<secret>"}], "slack_configs": [{"channel": "a"}]}
        watch.alertmanager.status = status(own=own)
        watch.alertmanager.add(LOST, receivers=[{"name": OWN}])
        await watch.clock.advance(60)
        assert watch.recorded() == []


def to_remediator(number: int, **changes: Any) -> dict[str, Any]:
    """A webhook as `write_alertmanager.py` writes it."""
    authorization = {"type": "Bearer", "credentials_file": f"secrets/webhook-token-{number}"}
    http = {"authorization": authorization, "follow_redirects": False}
    http |= {"tls_config": {"ca_file": "secrets/ca.crt"}} if number == 1 else {}
    return {"url": "<secret>", "send_resolved": True, "http_config": http, **changes}


BOTH = [to_remediator(1), to_remediator(2)]
PAGER = {"url": "<secret>", "send_resolved": True}


@pytest.mark.parametrize(
    ("own", "another", "rings"),
    [
        (BOTH, [], False),
        (BOTH[:1], BOTH[1:], False),
        ([BOTH[0], PAGER], [], True),
        (BOTH[:1], [PAGER], True),
        (BOTH[:1], [BOTH[1], PAGER], True),
        ([PAGER], [PAGER], True),  # without a token nothing shows which one it is
    ],
)
async def test_another_remediator_is_no_destination_that_rings(
    start: Start, own: list[Any], another: list[Any], *, rings: bool
) -> None:
    watch: Watch
    async with start() as watch:
        webhooks = {"own": {"webhook_configs": own}, "another": {"webhook_configs": another}}
        watch.alertmanager.status = status(**webhooks)
        watch.alertmanager.add(LOST, receivers=[{"name": OWN}, {"name": ANOTHER}])
        await watch.clock.advance(60)
        assert watch.recorded() == ([] if rings else [BEGUN])


async def test_memory_over_a_limit_that_nobody_acts_on_is_reported_in_bytes(start: Start) -> None:
    watch: Watch
    async with start() as watch:
        labels = GONE | {"alertname": "TrainingWorkerMemoryOverLimit", "worker": "rollout-0"}
        watch.observer.workers[ROLLOUT] = WorkerState(
            *(1, 1, 3 << 30, False, NOW - 60), memory_limit_bytes=200 << 20, age_limit_seconds=None
        )
        watch.alertmanager.add(labels)
        fingerprint = watch.alertmanager.alerts[-1]["fingerprint"]
        alert = replace(make_alert(starts_at=NOW), fingerprint=fingerprint, labels=labels)
        watch.journal.record_alerts([alert])
        (incident,) = watch.journal.open_incidents()
        never = Decision(Verdict.REFUSE, "unknown_target", detail="started with `--restart never`")
        watch.journal.record_decisions([(incident, never)])
        await watch.clock.advance(60)
        (event,) = [one for one in watch.journal.newest_events(9) if one.kind == "unhandled"]
        assert "it holds 3.0 GiB, its limit is 200 MiB; the remediator may" in describe(event)
        assert "(started with `--restart never`)" in describe(event)


@pytest.mark.parametrize("body", [b"{}", b'{"config": {"original": "a: ["}}', b"[]"])
def test_a_status_that_is_none_is_an_error(body: bytes) -> None:
    with pytest.raises(ObservationError):
        parse_destinations(body)


def rules() -> list[dict[str, Any]]:
    files = [yaml.safe_load(one.read_text()) for one in (PROJECT / "rules/alerts").glob("*.yml")]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def test_the_alerts_that_are_notified_otherwise_exist() -> None:
    assert {rule["alert"] for rule in rules()} >= NOTIFIED_OTHERWISE | BLIND


def test_each_critical_alert_fires_again_before_its_absence_counts_as_its_end() -> None:
    for rule in rules():
        if rule["labels"]["severity"] == "critical":
            # Without an offset one sample is enough.
            windows = re.findall(r"\[(\d+[sm])\] offset (\d+[sm])", rule["expr"])
            needed = max((seconds(one) + seconds(offset) for one, offset in windows), default=0)
            assert seconds(rule.get("for", "0s")) + needed < RESOLVE_SECONDS, rule["alert"]


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]
