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
from tests.remediator.conftest import (
    FINGERPRINT,
    GIB,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    FakeClock,
    FakeEyes,
    InlineExecutor,
    InlineLane,
    Scene,
    Stage,
    going_on,
    make_alert,
    make_worker,
)

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator import engine
from trainwarden_remediator.alertmanager import Matcher, Silence
from trainwarden_remediator.brake import CALM_SECONDS, Brake
from trainwarden_remediator.brakesettings import LocalBrake
from trainwarden_remediator.config import Config
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.lasting import Lasting
from trainwarden_remediator.metrics import Condition, Record
from trainwarden_remediator.ownlook import SavesLook
from trainwarden_remediator.reporting.incident import Style
from trainwarden_remediator.reporting.telling import tell_incident
from trainwarden_remediator.reporting.times import Times
from trainwarden_remediator.sight import RunSight, Sight
from trainwarden_remediator.status import judge
from trainwarden_remediator.story import sentence
from trainwarden_remediator.world import BRAKE

SETTINGS = LocalBrake(silence=60, patience=20, stalled_patience=6, reserve=4096)
HEALED = {"resident_bytes": GIB, "processes": 1}


@dataclass
class Stalling(FakeEyes):
    """A box on which processes wait for memory `share` of the time."""

    clock: Callable[[], float] = lambda: 0.0
    share: float = 0.0

    async def look(self) -> Sight:
        stalled = {("host", "some"): self.share * self.clock(), ("host", "full"): 0.0}
        return replace(await super().look(), memory_stalled=stalled)


class Night:
    """A scene whose engine has a brake; the alerts fell silent when it began."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.own: Sight | UnknownError | MemoryError = UnknownError("no /proc")
        self.saves: Mapping[str, RunSight] | UnknownError | MemoryError = {}
        self.looks = self._look, [SavesLook(("demo", "second"), self._look_for_saves)]
        self.brake = make_brake(scene.journal, scene.clock, scene.eyes, *self.looks)
        self.brake.wake = scene.engine.wake
        scene.engine._brake = self.brake
        for key, size in ((ROLLOUT, 9), (TRAINER, 12), (OTHER, 3)):
            scene.eyes.workers[key] = make_worker(
                resident_bytes=size * GIB, memory_limit_bytes=20 * GIB
            )
        for key, action in scene.actions.items():
            action.heal = HEALED
            action.after = lambda key=key: self._relieve(key)  # type: ignore[misc]
        self.relieved_by = {TRAINER}

    def _relieve(self, key: Any) -> None:
        if key in self.relieved_by:
            self.scene.eyes.available = 20 * GIB

    def _look(self) -> Sight:
        if isinstance(self.own, Exception):
            raise self.own
        return self.own

    def _look_for_saves(self) -> Mapping[str, RunSight]:
        if isinstance(self.saves, Exception):
            raise self.saves
        return {"demo": RunSight(), "second": RunSight(), **self.saves}

    async def pass_time(self, seconds: float) -> None:
        await self.scene.clock.advance(seconds)

    def restarts(self) -> dict[str, int]:
        done = {key.worker + key.run: len(a.restarts) for key, a in self.scene.actions.items()}
        return {name: count for name, count in done.items() if count}

    def kinds(self) -> list[str]:
        return [event.kind for event in reversed(self.scene.journal.newest_events(1000))]

    def reasons(self) -> list[str]:
        return [word for word in self.scene.told() if word not in self.kinds()]


def make_brake(
    journal: Journal,
    clock: FakeClock,
    eyes: FakeEyes,
    look: Callable[[], Sight],
    saves: Sequence[SavesLook],
) -> Brake:
    return Brake(journal, SETTINGS, eyes, look, saves, clock=clock, lane=InlineLane)


@pytest.fixture
def begin(stage: Stage) -> Callable[..., Any]:
    @asynccontextmanager
    async def begin(**changes: Any) -> AsyncIterator[Night]:
        async with stage(**changes) as scene:
            night = Night(scene)
            async with going_on(night.brake.run()):
                await scene.clock.settle()
                yield night

    return begin


Begin = Callable[..., Any]


async def test_silence_is_told_once_and_its_end_too(begin: Begin) -> None:
    async with begin() as night:
        await night.pass_time(58)
        assert not night.brake.silent
        await night.pass_time(120)
        assert night.brake.silent
        assert night.kinds() == ["silent"]
        night.scene.journal.hear([], heartbeat=True)
        await night.pass_time(4)
        assert not night.brake.silent
        assert night.kinds() == ["silent", "heard"]


async def test_while_alerts_come_it_does_nothing_however_short_memory_is(begin: Begin) -> None:
    async with begin() as night:
        night.scene.eyes.available = GIB
        for _ in range(40):
            night.scene.journal.hear([], heartbeat=True)
            await night.pass_time(15)
        assert night.kinds() == []
        assert night.restarts() == {}


async def test_in_silence_a_lack_of_memory_that_lasts_costs_the_largest_worker_alone(
    begin: Begin,
) -> None:
    async with begin() as night:
        await night.pass_time(70)
        night.scene.eyes.available = GIB
        await night.pass_time(18)
        assert night.restarts() == {}
        await night.pass_time(20)
        assert night.restarts() == {"trainerdemo": 1}
        await night.pass_time(300)
        assert night.restarts() == {"trainerdemo": 1}
        assert night.scene.done() == ["silent", "alert", "intent", *DONE, "resolved", "resolved"]
        assert not night.brake.on
        assert night.scene.journal.open_incidents() == ()
        assert "alerts_received" not in night.scene.journal.tallies()


DONE = ("stop", "start", "done", "healed")


async def test_where_that_was_not_enough_the_next_is_taken_only_after_its_cooldown(
    begin: Begin,
) -> None:
    async with begin(cooldown=100) as night:
        night.relieved_by = {ROLLOUT}
        night.scene.eyes.available = GIB
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
            night.scene.eyes.available = available
            await night.pass_time(16)
        assert night.restarts() == {}


async def test_where_processes_wait_for_memory_it_is_quicker(
    begin: Begin, clock: FakeClock
) -> None:
    async with begin() as night:
        eyes = Stalling(clock=clock, share=0.5)
        eyes.workers, eyes.available = night.scene.eyes.workers, GIB
        night.scene.eyes.available = GIB
        night.brake.use(SETTINGS, eyes, *night.looks)
        await night.pass_time(72)
        assert night.restarts() == {"trainerdemo": 1}


async def test_pressure_alone_is_no_ground(begin: Begin, clock: FakeClock) -> None:
    async with begin() as night:
        stalling = Stalling(clock=clock, share=1.0)
        night.brake.use(SETTINGS, stalling, *night.looks)
        await night.pass_time(300)
        assert not night.brake.on


async def test_in_mode_observe_it_only_says(begin: Begin) -> None:
    async with begin(mode="observe") as night:
        night.scene.eyes.available = GIB
        await night.pass_time(300)
        assert night.restarts() == {}
        assert night.scene.told().count("observe_mode") == 1


async def test_a_person_who_holds_holds_it_too(begin: Begin) -> None:
    async with begin() as night:
        night.scene.setup.config.hold_file.touch()
        night.scene.eyes.available = GIB
        await night.pass_time(300)
        assert night.restarts() == {}
        assert "held" in night.scene.told()


async def test_where_it_is_not_enabled_it_only_tells_of_the_silence(begin: Begin) -> None:
    async with begin() as night:
        off = SETTINGS.model_copy(update={"enabled": False})
        night.brake.use(off, night.scene.eyes, *night.looks)
        night.scene.eyes.available = GIB
        await night.pass_time(300)
        assert night.kinds() == ["silent"]


@asynccontextmanager
async def nobody_answers(begin: Begin, **changes: Any) -> AsyncIterator[Night]:
    """Memory is short, exporter and Alertmanager are dead, and the trainer is the largest."""
    async with begin(**changes) as night:
        eyes = night.scene.eyes
        eyes.available = GIB
        night.own = await eyes.look()
        eyes.deaf = eyes.blind = UnknownError("connection refused")

        def restarted() -> None:
            night.own = Sight(dict(eyes.workers), 20 * GIB, 2 * GIB)

        for action in night.scene.actions.values():
            action.after = restarted
        yield night


async def test_with_alertmanager_and_exporter_dead_it_looks_and_verifies_by_itself(
    begin: Begin,
) -> None:
    async with nobody_answers(begin) as night:
        await night.pass_time(100)
        assert night.restarts() == {"trainerdemo": 1}
        assert night.scene.done() == ["silent", "alert", "intent", *DONE]


async def test_with_the_exporter_dead_it_looks_for_a_save_by_itself_and_waits_for_it(
    begin: Begin,
) -> None:
    async with nobody_answers(begin) as night:
        night.saves = {"demo": RunSight(checkpoint=10, saving=True)}
        await night.pass_time(300)
        assert night.restarts() == {}
        assert "saving" in night.scene.told()
        night.saves = {"demo": RunSight(checkpoint=11)}
        await night.pass_time(10)
        assert night.restarts() == {"trainerdemo": 1}
        (acted,) = (e for e in night.scene.journal.newest_events(99) if e.kind == "intent")
        assert acted.worker == "trainer"


async def test_but_not_for_ever(begin: Begin) -> None:
    async with nobody_answers(begin) as night:
        patience = night.scene.setup.config.targets[0].save_patience
        night.saves = {"demo": RunSight(checkpoint=10, saving=True)}
        await night.pass_time(patience + 60)
        assert night.restarts() == {}
        await night.pass_time(60)
        assert night.restarts() == {"trainerdemo": 1}


async def test_of_another_run_it_need_not_know(begin: Begin) -> None:
    async with nobody_answers(begin) as night:
        night.saves = {"second": RunSight(saves_unknown="checkpoints of second: I/O error")}
        await night.pass_time(100)
        assert night.restarts() == {"trainerdemo": 1}
        told = [sentence(event) for event in night.scene.journal.newest_events(99)]
        assert "TrainingLocalBrake: act: restart it" in told


@pytest.mark.parametrize(
    "saves",
    [
        UnknownError("checkpoints of demo: Input/output error"),
        {"demo": RunSight(saves_unknown="checkpoints of demo: Input/output error")},
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
        told = [sentence(event) for event in night.scene.journal.newest_events(99)]
        assert f"TrainingLocalBrake: act: restart it ({doubt})" in told
        style = Style(Times(UTC), config_file="remediator.yml")
        report = tell_incident(tmp_path / "journal.db", 1, style, night.scene.clock.now())
        assert report is not None
        assert re.search(rf"It was acted upon at \S+ although {doubt}\.", report)


@pytest.mark.parametrize(
    ("saves", "key", "waits"),
    [
        ({"demo": RunSight(checkpoint=10)}, TRAINER, False),
        ({"demo": RunSight(checkpoint=10, saving=True)}, TRAINER, True),
        (UnknownError("no answer"), TRAINER, True),
        (UnknownError("no answer"), ROLLOUT, False),
        ({"demo": RunSight(saves_unknown="no answer")}, TRAINER, True),
        ({"second": RunSight(saves_unknown="no answer")}, TRAINER, False),
    ],
)
async def test_a_save_that_cannot_be_excluded_puts_off_the_sigkill(
    begin: Begin, saves: Any, key: WorkerKey, *, waits: bool
) -> None:
    async with nobody_answers(begin) as night:
        night.scene.setup.config.hold_file.touch()
        night.saves = saves
        await night.pass_time(100)
        assert night.brake.on
        target = night.scene.setup.config.target(key)
        assert target is not None
        acting = night.scene.engine._acting
        order = acting._order(1, "relieve_memory", 0, target, None)
        lane = Lane("an act")
        assert await lane.call(acting.carrier._saving(order)) is waits
        lane.close()


async def test_what_it_has_set_aside_is_lent_to_who_needs_it_and_taken_back_later(
    begin: Begin,
) -> None:
    async with begin() as night:
        await night.pass_time(10)
        assert night.brake._reserve.held
        night.brake.lend()
        await night.pass_time(CALM_SECONDS - 4)
        assert not night.brake._reserve.held
        await night.pass_time(8)
        assert night.brake._reserve.held


async def test_a_turn_without_memory_is_lent_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(*_: Any) -> Any:
        raise MemoryError

    async with begin() as night:
        await night.pass_time(10)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "decide", starve)
            night.scene.hear()
            await night.pass_time(1)
        assert night.scene.engine.broken_off == 1
        assert not night.brake._reserve.held


@pytest.mark.parametrize("error", [MemoryError(), UnknownError("cannot allocate memory")])
async def test_where_it_cannot_even_look_it_looks_again_with_what_is_set_aside(
    begin: Begin, error: MemoryError | UnknownError
) -> None:
    async with begin() as night:
        eyes = night.scene.eyes
        plenty = await eyes.look()
        eyes.available = GIB
        short = await eyes.look()
        eyes.deaf = eyes.blind = UnknownError("connection refused")
        night.own = error
        await night.pass_time(100)
        assert not night.brake._reserve.held
        night.own = plenty
        await night.pass_time(4)
        assert night.brake._reserve.held
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
        assert night.scene.done() == ["silent", "alert", "intent", *DONE]
        told = [sentence(event) for event in night.scene.journal.newest_events(99)]
        doubt = "a save could not be excluded: no memory to look at checkpoints"
        assert f"TrainingLocalBrake: act: restart it ({doubt})" in told


async def test_other_alerts_are_not_decided_on_what_it_sees_by_itself(begin: Begin) -> None:
    async with begin() as night:
        eyes = night.scene.eyes
        eyes.available = GIB
        eyes.workers[ROLLOUT] = make_worker()
        night.own = await eyes.look()
        eyes.blind = UnknownError("connection refused")
        night.scene.setup.config.hold_file.touch()
        await night.pass_time(100)
        assert night.brake.on
        night.scene.hear()
        night.scene.setup.config.hold_file.unlink()
        await night.pass_time(4)
        incidents = {one.fingerprint: one.said for one in night.scene.journal.open_incidents()}
        assert incidents[FINGERPRINT] != "act restart"
        assert night.scene.actions[ROLLOUT].restarts == []
        assert night.restarts() == {"trainerdemo": 1}


async def test_what_a_person_has_silenced_is_left_alone(begin: Begin) -> None:
    async with begin() as night:
        night.scene.eyes.silences = (Silence((Matcher("alertname", "TrainingLocalBrake"),)),)
        night.scene.eyes.available = GIB
        await night.pass_time(300)
        assert night.restarts() == {}
        assert "silenced" in night.scene.told()


async def test_when_alerts_come_again_it_lets_go(begin: Begin) -> None:
    async with begin() as night:
        night.scene.setup.config.hold_file.touch()
        night.scene.eyes.available = GIB
        await night.pass_time(120)
        assert night.brake.on
        assert not night.brake._reserve.held
        night.scene.journal.hear([], heartbeat=True)
        await night.pass_time(4)
        assert not night.brake.on
        assert night.brake._reserve.held
        night.scene.setup.config.hold_file.unlink()
        await night.pass_time(30)
        assert night.restarts() == {}
        assert night.scene.journal.open_incidents() == ()


async def test_what_an_earlier_run_of_the_program_left_on_is_ended(
    begin: Begin, journal: Journal
) -> None:
    labels: dict[str, Any] = {"remediation": "relieve_memory", "run": "", "worker": ""}
    journal.hear([make_alert(fingerprint=BRAKE, starts_at=NOW - 60, **labels)], counted=False)
    async with begin() as night:
        night.scene.eyes.available = GIB
        await night.pass_time(10)
        assert night.restarts() == {}
        assert journal.open_incidents() == ()


async def test_a_brake_that_hangs_is_not_alive(begin: Begin, clock: FakeClock) -> None:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    async with begin() as night:
        await night.pass_time(600)
        assert night.brake.is_alive()
        clock.pass_by(61)
        assert not night.brake.is_alive()


def test_what_lasts_is_counted_from_look_to_look() -> None:
    lasting = Lasting(longest=10)
    assert [lasting.note(True, now) for now in (100, 102, 109)] == [0, 2, 9]
    assert lasting.note(False, 110) == 0
    assert [lasting.note(True, now) for now in (111, 112)] == [0, 1]


def test_a_look_that_comes_late_stands_for_a_little_only() -> None:
    lasting = Lasting(longest=10)
    assert [lasting.note(True, now) for now in (0, 3600, 3601)] == [0, 10, 11]


@pytest.mark.parametrize(
    ("braking", "verdict"),
    [
        (False, "No alerts come any more: only the local brake watches over the memory."),
        (True, "No alerts come and memory is short: the local brake is on."),
    ],
)
def test_the_status_page_says_so(journal: Journal, braking: bool, verdict: str) -> None:
    record = Record(
        tallies=journal.tallies(), moments=journal.moments(), given_up=(), open_incidents=0
    )
    condition = Condition(
        mode="act",
        held=False,
        reload_successful=True,
        reload_timestamp=NOW,
        web_file_successful=None,
        webhooks={},
        record=record,
        silent=True,
        braking=braking,
    )
    assert judge(condition, Config(insecure=True)) == ("bad", verdict)


def test_the_journal_tells_of_it_in_words(journal: Journal) -> None:
    journal.note("silent", last=NOW)
    journal.note("heard")
    told = [sentence(event) for event in journal.newest_events(2)]
    assert told[0] == "alerts come again"
    assert told[1].startswith("no alerts come any more")
