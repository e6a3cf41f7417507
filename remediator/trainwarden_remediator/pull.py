"""Asks Alertmanager for this box's alerts, where nothing shall listen for its webhooks.

What is heard so is journaled as a delivery would be. Sources: Alertmanager's API v2
(`api/v2/openapi.yaml`), the same from 0.25 on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwarden_remediator.alertmanager import ListedAlert, parse_listed
from trainwarden_remediator.alerts import WATCHDOG, Alert
from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.exceptions import JournalError, UnknownError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.lasting import Lasting
from trainwarden_remediator.pullsettings import Pull
from trainwarden_remediator.world import BRAKE

log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
"""How often an alert that lasts is told to the journal, as the shipped routes repeat it."""

LONGEST_LOOK = 30.0
"""For how many seconds one answer can stand."""

IDLE_SECONDS = 5.0
"""How often it is looked whether alerts are to be asked for by now."""

REMEDIATION = 'remediation!=""'
HEARTBEAT = f'alertname="{WATCHDOG}"'

Fetch = Callable[[Sequence[str]], Awaitable[bytes]]
"""The answer of `/api/v2/alerts` to a list of filters. Raises UnknownError."""


@dataclass(slots=True)
class _Known:
    """An alert that was listed. Times are those of a clock that only goes on."""

    alert: Alert
    told_at: float | None = None
    gone: Lasting = field(default_factory=lambda: Lasting(longest=LONGEST_LOOK))


class Puller:
    """Asks again and again, and writes down what is new, lasts, or is over.

    An answer without an alert does not say that its trouble is over: Alertmanager may have been
    started just now, or Prometheus be dead. Only what stays away for long, while the alert that
    always fires goes on being sent, counts as resolved.
    """

    def __init__(
        self,
        journal: Journal,
        settings: Pull | None,
        fetch: Fetch,
        *,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._wake = wake
        self._known: dict[tuple[str, float], _Known] | None = None
        self._beat = 0.0
        self._beaten_at: float | None = None
        self._failure = ""
        self.asked_at: float | None = None
        """When Alertmanager last answered, in Unix seconds."""
        self.use(settings, fetch)

    def use(self, settings: Pull | None, fetch: Fetch) -> None:
        """Go by these from the next question on."""
        self._settings = settings
        self._fetch = fetch

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            settings = self._settings
            if settings is not None:
                await self._ask(settings)
            await self._clock.sleep(IDLE_SECONDS if settings is None else settings.interval)

    async def _ask(self, settings: Pull) -> None:
        try:
            if self._known is None:
                self._known = await asyncio.to_thread(self._remember)
            listed = parse_listed(await self._fetch([*settings.match, REMEDIATION]))
            beats = parse_listed(await self._fetch([HEARTBEAT]))
            own = [one for one in listed if _is_own(one, settings)]
            await self._take(settings, self._known, own, beats)
        except (UnknownError, JournalError, MemoryError) as error:
            said = str(error) or "no memory"
            if said != self._failure:
                log.error("alerts cannot be taken", extra={"error": said})
            self._failure = said
            return
        if self._failure:
            log.info("alerts can be taken again")
        self._failure, self.asked_at = "", self._clock.now()

    def _remember(self) -> dict[tuple[str, float], _Known]:
        """What was heard before the program was started, and may be over by now."""
        return {
            (one.fingerprint, one.starts_at): _Known(
                Alert(one.fingerprint, one.starts_at, firing=True, labels=one.labels)
            )
            for one in self._journal.open_incidents()
            if not one.resolved and one.fingerprint != BRAKE
        }

    async def _take(
        self,
        settings: Pull,
        known: dict[tuple[str, float], _Known],
        own: Sequence[ListedAlert],
        beats: Sequence[ListedAlert],
    ) -> None:
        now = self._clock.monotonic()
        beat = max((one.updated_at for one in beats), default=0.0)
        # Alertmanager lists it for minutes after Prometheus died; only each new sending is a beat.
        beaten = beat > self._beat
        beaten_at = now if beaten else self._beaten_at
        fed = bool(beats) and beaten_at is not None and now - beaten_at < settings.resolve_after
        present = {(one.alert.fingerprint, one.alert.starts_at): one for one in own}
        over = _over(known, present, fed=fed, now=now, settings=settings)
        heard = [
            one.alert for key, one in present.items() if one.active and _is_due(known.get(key), now)
        ]
        if heard or over or beaten:
            resolved = [replace(known[key].alert, firing=False) for key in over]
            await asyncio.to_thread(self._journal.hear, [*resolved, *heard], heartbeat=beaten)
        for key in over:
            del known[key]
        for alert in heard:
            key = (alert.fingerprint, alert.starts_at)
            known.setdefault(key, _Known(alert)).told_at = now
        self._beat, self._beaten_at = max(beat, self._beat), beaten_at
        if heard or over:
            self._wake()


def _is_own(one: ListedAlert, settings: Pull) -> bool:
    """Whether it is what was asked for; a proxy may have lost the question on the way."""
    met = all(matcher.meets(one.alert.labels) for matcher in settings.matchers)
    return met and bool(one.alert.remediation)


def _is_due(known: _Known | None, now: float) -> bool:
    return known is None or known.told_at is None or now - known.told_at >= REPEAT_SECONDS


def _over(
    known: Mapping[tuple[str, float], _Known],
    present: Mapping[tuple[str, float], ListedAlert],
    *,
    fed: bool,
    now: float,
    settings: Pull,
) -> list[tuple[str, float]]:
    """What is over: long gone, or fires anew, which is another alert."""
    anew = {fingerprint for fingerprint, _ in present}
    found = []
    for key, one in known.items():
        gone = key not in present
        lasted = one.gone.note(gone and fed, now)
        if gone and (key[0] in anew or lasted >= settings.resolve_after):
            found.append(key)
    return found
