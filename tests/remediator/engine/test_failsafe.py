from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor, InlineThread
from tests.remediator.fakes import FakeObserver
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    make_alert,
    make_worker,
)
from tests.remediator.stage import Scene, Stage, going_on

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.alertmanager.api import Silence, SilenceMatcher
from trainwarden_remediator.config.limits import FailsafeSettings
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.engine import control_loop
from trainwarden_remediator.engine.failsafe import RECOVERY_SECONDS, Failsafe
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.local_fallback import CheckpointObserver
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.observation.snapshot import FAILSAFE_FINGERPRINT
from trainwarden_remediator.report.incident import ReportStyle
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.nightly import report_incident
from trainwarden_remediator.runtime.clock import ConditionTimer
from trainwarden_remediator.telemetry.headline import CurrentWork, headline
from trainwarden_remediator.telemetry.state import JournalSummary, RemediatorState

SETTINGS = FailsafeSettings(
    watchdog_timeout=60, shortage_duration=20, stalled_shortage_duration=6, reserve=4096
)
HEALED = {"memory_bytes": GIB, "processes": 1}


@dataclass
class Stalling(FakeObserver):
    """A box on which processes wait for memory `share` of the time."""

    clock: Callable[[], float] = lambda: 0.0
    share: float = 0.0

    async def observe(self) -> ExporterState:
        stalled = {("host", "some"): self.share * self.clock(), ("host", "full"): 0.0}
        return replace(await super().observe(), memory_stalled=stalled)


class Night:
    """A scene whose engine has a brake; the alerts fell silent when it began."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.own: ExporterState | ObservationError | MemoryError = ObservationError("no /proc")
        self.saves: Mapping[str, RunState] | ObservationError | MemoryError = {}
        self.looks = self._look, [CheckpointObserver(("demo", "second"), self._look_for_saves)]
        self.failsafe = make_brake(scene.journal, scene.clock, scene.observer, *self.looks)
        self.failsafe.wake = scene.engine.wake
        scene.context.failsafe = self.failsafe
        for key, size in ((ROLLOUT, 9), (TRAINER, 12), (OTHER, 3)):
            scene.observer.workers[key] = make_worker(
                memory_bytes=size * GIB, memory_limit_bytes=20 * GIB
            )
        for key, action in scene.actions.items():
            action.heal = HEALED
            action.after = lambda key=key: self._relieve(key)  # type: ignore[misc]
        self.relieved_by = {TRAINER}

    def _relieve(self, key: Any) -> None:
        if key in self.relieved_by:
            self.scene.observer.available = 20 * GIB

    def _look(self) -> ExporterState:
        if isinstance(self.own, Exception):
            raise self.own
        return self.own

    def _look_for_saves(self) -> Mapping[str, RunState]:
        if isinstance(self.saves, Exception):
            raise self.saves
        return {"demo": RunState(), "second": RunState(), **self.saves}

    async def pass_time(self, seconds: float) -> None:
        await self.scene.clock.advance(seconds)

    def restarts(self) -> dict[str, int]:
        done = {key.worker + key.run: len(a.restarts) for key, a in self.scene.actions.items()}
        return {name: count for name, count in done.items() if count}

    def kinds(self) -> list[str]:
        return [event.kind for event in reversed(self.scene.journal.newest_events(1000))]

    def reasons(self) -> list[str]:
        return [word for word in self.scene.journaled() if word not in self.kinds()]


def make_brake(
    journal: Journal,
    clock: FakeClock,
    observer: FakeObserver,
    observe: Callable[[], ExporterState],
    saves: Sequence[CheckpointObserver],
) -> Failsafe:
    return Failsafe(
        journal, SETTINGS, observer, observe, saves, clock=clock, thread_factory=InlineThread
    )


@pytest.fixture
def begin(stage: Stage) -> Callable[..., Any]:
    @asynccontextmanager
    async def begin(**changes: Any) -> AsyncIterator[Night]:
        async with stage(**changes) as scene:
            night = Night(scene)
            async with going_on(night.failsafe.run()):
                await scene.clock.settle()
                yield night

    return begin


Begin = Callable[..., Any]


async def test_silence_is_reported_once_and_its_end_too(begin: Begin) -> None:
    async with begin() as night:
        await night.pass_time(58)
        assert not night.failsafe.alerts_stale
        await night.pass_time(120)
        assert night.failsafe.alerts_stale
        assert night.kinds() == ["alerts_stale"]
        night.scene.journal.record_alerts([], heartbeat=True)
        await night.pass_time(4)
        assert not night.failsafe.alerts_stale
        assert night.kinds() == ["alerts_stale", "alerts_resumed"]


async def test_while_alerts_come_it_does_nothing_however_short_memory_is(begin: Begin) -> None:
    async with begin() as night:
        night.scene.observer.available = GIB
        for _ in range(40):
            night.scene.journal.record_alerts([], heartbeat=True)
            await night.pass_time(15)
        assert night.kinds() == []
        assert night.restarts() == {}


async def test_in_silence_a_lack_of_memory_that_lasts_costs_the_largest_worker_alone(
    begin: Begin,
) -> None:
    async with begin() as night:
        await night.pass_time(70)
        night.scene.observer.available = GIB
        await night.pass_time(18)
        assert night.restarts() == {}
        await night.pass_time(20)
        assert night.restarts() == {"trainerdemo": 1}
        await night.pass_time(300)
        assert night.restarts() == {"trainerdemo": 1}
        assert night.scene.done() == [
            "alerts_stale",
            "alert",
            "intent",
            *DONE,
            "resolved",
            "resolved",
        ]
        assert not night.failsafe.is_active
        assert night.scene.journal.open_incidents() == ()
        assert "alerts_received" not in night.scene.journal.counters()


DONE = ("stop", "start", "done", "healed")


async def test_where_that_was_not_enough_the_next_is_taken_only_after_its_cooldown(
    begin: Begin,
) -> None:
    async with begin(cooldown=100) as night:
        night.relieved_by = {ROLLOUT}
        night.scene.observer.available = GIB
        await night.pass_time(100)
        assert night.restarts() == {"trainerdemo": 1}
        await night.pass_time(60)
        assert night.restarts() == {"trainerdemo": 1}
        await night.pass_time(60)
        assert night.restarts() == {"trainerdemo": 1, "rollout-0demo": 1}
        await night.pass_time(600)
        assert night.restarts() == {"trainerdemo": 1, "rollout-0demo": 1}


async def test_a_lack_that_passes_is_none(begin: Begin) -> None:
    async with begin() as night:
        await night.pass_time(70)
        for available in (GIB, 20 * GIB) * 4:
            night.scene.observer.available = available
            await night.pass_time(16)
        assert night.restarts() == {}


async def test_where_processes_wait_for_memory_it_is_quicker(
    begin: Begin, clock: FakeClock
) -> None:
    async with begin() as night:
        observer = Stalling(clock=clock, share=0.5)
        observer.workers, observer.available = night.scene.observer.workers, GIB
        night.scene.observer.available = GIB
        night.failsafe.reconfigure(SETTINGS, observer, *night.looks)
        await night.pass_time(72)
        assert night.restarts() == {"trainerdemo": 1}


async def test_pressure_alone_is_no_ground(begin: Begin, clock: FakeClock) -> None:
    async with begin() as night:
        stalling = Stalling(clock=clock, share=1.0)
        night.failsafe.reconfigure(SETTINGS, stalling, *night.looks)
        await night.pass_time(300)
        assert not night.failsafe.is_active


async def test_in_mode_observe_it_only_says(begin: Begin) -> None:
    async with begin(mode="observe") as night:
        night.scene.observer.available = GIB
        await night.pass_time(300)
        assert night.restarts() == {}
        assert night.scene.journaled().count("observe_mode") == 1


async def test_an_operator_who_holds_holds_it_too(begin: Begin) -> None:
    async with begin() as night:
        night.scene.setup.config.hold_file.touch()
        night.scene.observer.available = GIB
        await night.pass_time(300)
        assert night.restarts() == {}
        assert "held" in night.scene.journaled()


async def test_where_it_is_not_enabled_it_only_tells_of_the_silence(begin: Begin) -> None:
    async with begin() as night:
        off = SETTINGS.model_copy(update={"enabled": False})
        night.failsafe.reconfigure(off, night.scene.observer, *night.looks)
        night.scene.observer.available = GIB
        await night.pass_time(300)
        assert night.kinds() == ["alerts_stale"]


@asynccontextmanager
async def nobody_answers(begin: Begin, **changes: Any) -> AsyncIterator[Night]:
    """Memory is short, exporter and Alertmanager are dead, and the trainer is the largest."""
    async with begin(**changes) as night:
        observer = night.scene.observer
        observer.available = GIB
        night.own = await observer.observe()
        observer.deaf = observer.blind = ObservationError("connection refused")

        def restarted() -> None:
            night.own = ExporterState(dict(observer.workers), 20 * GIB, 2 * GIB)

        for action in night.scene.actions.values():
            action.after = restarted
        yield night


async def test_with_alertmanager_and_exporter_dead_it_observes_and_verifies_locally(
    begin: Begin,
) -> None:
    async with nobody_answers(begin) as night:
        await night.pass_time(100)
        assert night.restarts() == {"trainerdemo": 1}
        assert night.scene.done() == ["alerts_stale", "alert", "intent", *DONE]


async def test_with_the_exporter_dead_it_detects_a_save_locally_and_waits_for_it(
    begin: Begin,
) -> None:
    async with nobody_answers(begin) as night:
        night.saves = {"demo": RunState(checkpoint=10, saving=True)}
        await night.pass_time(300)
        assert night.restarts() == {}
        assert "saving" in night.scene.journaled()
        night.saves = {"demo": RunState(checkpoint=11)}
        await night.pass_time(10)
        assert night.restarts() == {"trainerdemo": 1}
        (acted,) = (e for e in night.scene.journal.newest_events(99) if e.kind == "intent")
        assert acted.worker == "trainer"


async def test_but_not_for_ever(begin: Begin) -> None:
    async with nobody_answers(begin) as night:
        patience = night.scene.setup.config.targets[0].max_save_delay
        night.saves = {"demo": RunState(checkpoint=10, saving=True)}
        await night.pass_time(patience + 60)
        assert night.restarts() == {}
        await night.pass_time(60)
        assert night.restarts() == {"trainerdemo": 1}


async def test_of_another_run_it_need_not_know(begin: Begin) -> None:
    async with nobody_answers(begin) as night:
        night.saves = {"second": RunState(saves_unknown="checkpoints of second: I/O error")}
        await night.pass_time(100)
        assert night.restarts() == {"trainerdemo": 1}
        journaled = [describe(event) for event in night.scene.journal.newest_events(99)]
        assert "TrainingLocalBrake: act: restart the worker" in journaled


@pytest.mark.parametrize(
    "saves",
    [
        ObservationError("checkpoints of demo: Input/output error"),
        {"demo": RunState(saves_unknown="checkpoints of demo: Input/output error")},
    ],
)
async def test_where_it_cannot_see_that_either_journal_and_report_say_so(
    begin: Begin, tmp_path: Path, saves: Any
) -> None:
    async with nobody_answers(begin) as night:
        night.saves = saves
        await night.pass_time(100)
        assert night.restarts() == {"trainerdemo": 1}
        doubt = "a save could not be excluded: checkpoints of demo: Input/output error"
        journaled = [describe(event) for event in night.scene.journal.newest_events(99)]
        assert f"TrainingLocalBrake: act: restart the worker ({doubt})" in journaled
        style = ReportStyle(TimeFormat(UTC), config_file="remediator.yml")
        report = report_incident(tmp_path / "journal.db", 1, style, night.scene.clock.now())
        assert re.search(rf"Action at \S+ although {doubt}\.", report)


@pytest.mark.parametrize(
    ("saves", "key", "waits"),
    [
        ({"demo": RunState(checkpoint=10)}, TRAINER, False),
        ({"demo": RunState(checkpoint=10, saving=True)}, TRAINER, True),
        (ObservationError("no answer"), TRAINER, True),
        (ObservationError("no answer"), ROLLOUT, False),
        ({"demo": RunState(saves_unknown="no answer")}, TRAINER, True),
        ({"second": RunState(saves_unknown="no answer")}, TRAINER, False),
    ],
)
async def test_a_save_that_cannot_be_excluded_puts_off_the_sigkill(
    begin: Begin, saves: Any, key: WorkerKey, *, waits: bool
) -> None:
    async with nobody_answers(begin) as night:
        night.scene.setup.config.hold_file.touch()
        night.saves = saves
        await night.pass_time(100)
        assert night.failsafe.is_active
        target = night.scene.setup.config.target(key)
        assert target is not None
        acting = night.scene.engine._executor
        order = acting._action_request(1, "relieve_memory", 0, target, None)
        thread = SerialThread("an act")
        assert await thread.call(acting.action_runner._save_check(order)) is waits
        thread.close()


async def test_what_it_has_set_aside_is_lent_to_who_needs_it_and_taken_back_later(
    begin: Begin,
) -> None:
    async with begin() as night:
        await night.pass_time(10)
        assert night.failsafe._reserve._memory
        night.failsafe.release_reserve()
        await night.pass_time(RECOVERY_SECONDS - 4)
        assert not night.failsafe._reserve._memory
        await night.pass_time(8)
        assert night.failsafe._reserve._memory


async def test_a_turn_without_memory_is_lent_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(*_: Any) -> Any:
        raise MemoryError

    async with begin() as night:
        await night.pass_time(10)
        with monkeypatch.context() as patch:
            patch.setattr(control_loop, "decide", starve)
            night.scene.hear()
            await night.pass_time(1)
        assert night.scene.engine.aborted_cycles == 1
        assert not night.failsafe._reserve._memory


@pytest.mark.parametrize("error", [MemoryError(), ObservationError("cannot allocate memory")])
async def test_where_it_cannot_even_look_it_looks_again_with_what_is_set_aside(
    begin: Begin, error: MemoryError | ObservationError
) -> None:
    async with begin() as night:
        observer = night.scene.observer
        plenty = await observer.observe()
        observer.available = GIB
        short = await observer.observe()
        observer.deaf = observer.blind = ObservationError("connection refused")
        night.own = error
        await night.pass_time(100)
        assert not night.failsafe._reserve._memory
        night.own = plenty
        await night.pass_time(4)
        assert night.failsafe._reserve._memory
        night.own = error
        await night.pass_time(4)
        night.own = short
        await night.pass_time(30)
        assert night.restarts() == {"trainerdemo": 1}


async def test_want_of_memory_for_its_own_look_ends_nothing_while_it_verifies(
    begin: Begin,
) -> None:
    async with nobody_answers(begin) as night:
        night.saves = MemoryError()
        trainer = night.scene.actions[TRAINER]
        restarted = trainer.after

        def starved() -> None:
            night.own = MemoryError()

        trainer.after = starved
        await night.pass_time(100)
        assert night.scene.done()[-1] == "done"
        restarted()
        await night.pass_time(20)
        assert night.scene.done() == ["alerts_stale", "alert", "intent", *DONE]
        journaled = [describe(event) for event in night.scene.journal.newest_events(99)]
        doubt = "a save could not be excluded: out of memory while scanning checkpoints"
        assert f"TrainingLocalBrake: act: restart the worker ({doubt})" in journaled


async def test_other_alerts_are_not_decided_on_its_local_observations(begin: Begin) -> None:
    async with begin() as night:
        observer = night.scene.observer
        observer.available = GIB
        observer.workers[ROLLOUT] = make_worker()
        night.own = await observer.observe()
        observer.blind = ObservationError("connection refused")
        night.scene.setup.config.hold_file.touch()
        await night.pass_time(100)
        assert night.failsafe.is_active
        night.scene.hear()
        night.scene.setup.config.hold_file.unlink()
        await night.pass_time(4)
        incidents = {
            one.fingerprint: one.last_decision for one in night.scene.journal.open_incidents()
        }
        assert incidents[FINGERPRINT] != "act restart"
        assert night.scene.actions[ROLLOUT].restarts == []
        assert night.restarts() == {"trainerdemo": 1}


async def test_what_an_operator_has_silenced_is_left_alone(begin: Begin) -> None:
    async with begin() as night:
        night.scene.observer.silences = (
            Silence((SilenceMatcher("alertname", "TrainingLocalBrake"),)),
        )
        night.scene.observer.available = GIB
        await night.pass_time(300)
        assert night.restarts() == {}
        assert "silenced" in night.scene.journaled()


async def test_when_alerts_come_again_it_lets_go(begin: Begin) -> None:
    async with begin() as night:
        night.scene.setup.config.hold_file.touch()
        night.scene.observer.available = GIB
        await night.pass_time(120)
        assert night.failsafe.is_active
        assert not night.failsafe._reserve._memory
        night.scene.journal.record_alerts([], heartbeat=True)
        await night.pass_time(4)
        assert not night.failsafe.is_active
        assert night.failsafe._reserve._memory
        night.scene.setup.config.hold_file.unlink()
        await night.pass_time(30)
        assert night.restarts() == {}
        assert night.scene.journal.open_incidents() == ()


async def test_what_an_earlier_run_of_the_program_left_on_is_ended(
    begin: Begin, journal: Journal
) -> None:
    labels: dict[str, Any] = {"remediation": "relieve_memory", "run": "", "worker": ""}
    journal.record_alerts(
        [make_alert(fingerprint=FAILSAFE_FINGERPRINT, starts_at=NOW - 60, **labels)], counted=False
    )
    async with begin() as night:
        night.scene.observer.available = GIB
        await night.pass_time(10)
        assert night.restarts() == {}
        assert journal.open_incidents() == ()


async def test_a_brake_that_hangs_is_not_alive(begin: Begin, clock: FakeClock) -> None:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    async with begin() as night:
        await night.pass_time(600)
        assert night.failsafe.is_alive()
        clock.pass_by(61)
        assert not night.failsafe.is_alive()


def test_what_lasts_is_counted_from_look_to_look() -> None:
    lasting = ConditionTimer(max_gap=10)
    assert [lasting.update(True, now) for now in (100, 102, 109)] == [0, 2, 9]
    assert lasting.update(False, 110) == 0
    assert [lasting.update(True, now) for now in (111, 112)] == [0, 1]


def test_a_look_that_comes_late_stands_for_a_little_only() -> None:
    lasting = ConditionTimer(max_gap=10)
    assert [lasting.update(True, now) for now in (0, 3600, 3601)] == [0, 10, 11]


@pytest.mark.parametrize(
    ("braking", "verdict"),
    [
        (False, "No alerts arrive: only the failsafe monitors the memory."),
        (True, "No alerts arrive and memory is short: the failsafe is active."),
    ],
)
def test_the_status_page_says_so(journal: Journal, braking: bool, verdict: str) -> None:
    summary = JournalSummary(
        counters=journal.counters(), timestamps=journal.timestamps(), given_up=(), open_incidents=0
    )
    condition = RemediatorState(
        mode="act",
        paused=False,
        reload_successful=True,
        reload_timestamp=NOW,
        web_config_loaded=None,
        webhooks={},
        journal=summary,
        alerts_stale=True,
        failsafe_active=braking,
    )
    work = CurrentWork(condition, ())
    shown = headline(work, Config(insecure=True), now=NOW)
    assert (shown.tone, shown.sentence) == ("bad", verdict)


def test_the_journal_tells_of_it_in_words(journal: Journal) -> None:
    journal.record_event("alerts_stale", last=NOW)
    journal.record_event("alerts_resumed")
    journaled = [describe(event) for event in journal.newest_events(2)]
    assert journaled[0] == "the watchdog alert arrives again"
    assert journaled[1].startswith("the watchdog alert stopped arriving")
