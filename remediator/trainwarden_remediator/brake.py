"""The local brake: what is done about a lack of memory when no alerts come any more.

It does not act. It raises an alert of its own, which goes the way of every other: the same journal,
playbook, budgets, hold, mode and verification. Only what it is judged by differs: whether it stands
is for the brake to say, and where the exporter cannot be asked, the remediator looks by itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trainwarden_exporter.lane import Lane
from trainwarden_remediator.alertmanager import AlertState, silenced
from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.brakesettings import LocalBrake
from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.exceptions import JournalError, UnknownError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.lasting import Lasting
from trainwarden_remediator.ownlook import OwnLook, SavesLook
from trainwarden_remediator.reserve import Reserve
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.world import BRAKE, Alerts, Eyes, World

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often it looks,"""
LONGEST_LOOK = 10.0
"""and for how many seconds one look can stand."""

CALM_SECONDS = 30.0
"""For so long there must be memory again before the brake is let go, and what it has lent out is
set aside anew."""

SOME_STALLED, FULL_STALLED = 0.2, 0.05
"""Share of the time in which some, or all, processes wait for memory that counts as stalling."""

ALIVE_SECONDS = 60.0

LABELS: Mapping[str, str] = {
    "alertname": "TrainingLocalBrake",
    "remediation": "relieve_memory",
    "severity": "critical",
    "source": "brake",
}
"""Those of its alert; what a person has silenced is compared with them."""


class Brake:
    """Listens for the alert that always fires, and looks for itself once that has fallen silent.

    `look` sees the box by itself, and `saves` how the checkpoints of each run stand; both block and
    raise UnknownError.
    """

    def __init__(
        self,
        journal: Journal,
        settings: LocalBrake,
        eyes: Eyes,
        look: Callable[[], Sight],
        saves: Sequence[SavesLook],
        *,
        clock: Clock,
        lane: Callable[[str], Lane] = Lane,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._own = OwnLook(lane)
        self._silence = Lasting(longest=LONGEST_LOOK)
        self._shortage = Lasting(longest=LONGEST_LOOK)
        self._calm = Lasting(longest=LONGEST_LOOK)
        self._beat: float | None = None
        self._stalled: Mapping[tuple[str, str], float] = {}
        self._seen_at = 0.0
        self._alert: Alert | None = None
        self._moved_at = clock.monotonic()
        self._reserve = Reserve(settings.reserve)
        self._lent_at = -math.inf
        self.use(settings, eyes, look, saves)
        self.silent = False
        """Whether the alert that always fires has not come for too long."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there is something to decide."""

    def use(
        self,
        settings: LocalBrake,
        eyes: Eyes,
        look: Callable[[], Sight],
        saves: Sequence[SavesLook],
    ) -> None:
        """Go by these from the next look on."""
        self._settings = settings
        self._eyes = eyes
        self._own.use(look, saves)

    @property
    def on(self) -> bool:
        """Whether it has raised its alert."""
        return self._alert is not None

    def is_alive(self) -> bool:
        """Whether it goes on looking."""
        return self._clock.monotonic() - self._moved_at < ALIVE_SECONDS

    def lend(self) -> None:
        """Give what is set aside to the program for now: something else has no memory to go on."""
        self._lent_at = self._clock.monotonic()
        self._reserve.release()

    async def run(self) -> None:
        """Look for ever."""
        await asyncio.to_thread(self._reserve.take)
        first = True
        while True:
            try:
                if first:
                    await asyncio.to_thread(self._let_go_of_earlier)
                    first = False
                await self._turn()
            except JournalError as error:
                log.error("journal failed", extra={"error": str(error)})
            except MemoryError:
                self._reserve.release()  # the next look has some
            self._moved_at = self._clock.monotonic()
            await self._clock.sleep(LOOK_SECONDS)

    async def seen(self, world: World) -> World:
        """`world`, and beside it what the brake's own alert is judged by, while it is on."""
        if not self.on:
            return world
        sight, unknown = world.sight, world.unknown
        if sight is None:
            try:
                sight = await self._own.at_all()
            except UnknownError as error:
                unknown = f"{unknown}; {error}"
        silences = world.alerts.silences if world.alerts else ()
        state = AlertState.SILENCED if silenced(LABELS, silences) else AlertState.ACTIVE
        own = World(Alerts({BRAKE: state}, silences), sight, unknown)
        return replace(world, brake=own)

    async def look(self) -> Sight:
        """What the exporter sees; what is seen without it, while the brake is on.

        Raises UnknownError.
        """
        try:
            return await self._eyes.look()
        except UnknownError:
            if not self.on:
                raise
            return await self._own.at_all()

    async def alerts(self) -> Alerts:
        """What Alertmanager says. Raises UnknownError."""
        return await self._eyes.alerts()

    async def _turn(self) -> None:
        settings, now = self._settings, self._clock.monotonic()
        beat = (await asyncio.to_thread(self._journal.moments)).get("watchdog")
        silent_for = self._silence.note(beat == self._beat, now)
        self._beat = beat
        await self._tell(silent_for >= settings.silence, beat)
        if not (self.silent and settings.enabled):
            self._shortage.note(False, now)
            await self._release()
            return
        try:
            sight = await self._eyes.look()
        except UnknownError:
            try:
                sight = await self._own.at_memory()
            except UnknownError as error:
                log.error("the local brake sees nothing", extra={"error": str(error)})
                # Where the kernel has no memory for an answer either: the next look has some.
                self._reserve.release()
                return
        await self._judge(sight)

    async def _tell(self, silent: bool, beat: float | None) -> None:
        if silent == self.silent:
            return
        if silent:
            log.error("no alerts come any more", extra={"last": beat})
            facts = {} if beat is None else {"last": beat}
            await asyncio.to_thread(self._journal.note, "silent", **facts)
        else:
            log.info("alerts come again")
            await asyncio.to_thread(self._journal.note, "heard")
        self.silent = silent

    async def _judge(self, sight: Sight) -> None:
        settings, now = self._settings, self._clock.monotonic()
        short = sight.memory_available_bytes < sight.memory_floor_bytes
        stalls = self._stalls(sight, now)
        lasted = self._shortage.note(short, now)
        calm = self._calm.note(not short, now)
        enough = settings.stalled_patience if stalls else settings.patience
        if self.on and calm >= CALM_SECONDS:
            await self._release()
        elif self.on or (short and lasted >= enough):
            await self._pull(sight)
        elif not short:
            await self._set_aside()

    def _stalls(self, sight: Sight, now: float) -> bool:
        before, then = self._stalled, self._seen_at
        self._stalled, self._seen_at = sight.memory_stalled, now
        if not 0 < now - then <= LONGEST_LOOK:
            return False
        limits = {"some": SOME_STALLED, "full": FULL_STALLED}
        return any(
            key in before and (total - before[key]) / (now - then) >= limits[key[1]]
            for key, total in sight.memory_stalled.items()
        )

    async def _pull(self, sight: Sight) -> None:
        self._reserve.release()
        alert = self._alert
        if alert is None:
            alert = Alert(BRAKE, self._clock.now(), firing=True, labels=LABELS)
            log.error(
                "the local brake is on",
                extra={
                    "available": int(sight.memory_available_bytes),
                    "floor": int(sight.memory_floor_bytes),
                },
            )
        await asyncio.to_thread(self._journal.hear, [alert], counted=False)
        self._alert = alert
        self.wake()

    async def _release(self) -> None:
        if self._alert is not None:
            over = replace(self._alert, firing=False)
            await asyncio.to_thread(self._journal.hear, [over], counted=False)
            self._alert = None
            log.info("the local brake is off")
        await self._set_aside()

    async def _set_aside(self) -> None:
        if self._clock.monotonic() - self._lent_at >= CALM_SECONDS:
            await asyncio.to_thread(self._reserve.take)

    def _let_go_of_earlier(self) -> None:
        """End what an earlier run of the program has left on."""
        left = [
            Alert(BRAKE, incident.starts_at, firing=False, labels=LABELS)
            for incident in self._journal.open_incidents()
            if incident.fingerprint == BRAKE and not incident.resolved
        ]
        if left:
            self._journal.hear(left, counted=False)
