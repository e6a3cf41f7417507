"""The state at the time of a report: what the exporter and Alertmanager show now."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.resolved_path import resolved_path
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.credentials.outgoing import RequestCredentials
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.holds.hold_file import read_holds
from trainwarden_remediator.observation.active_alerts import (
    ActiveAlertLister,
    ActiveAlerts,
    alert_fetcher,
)
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import HttpObserver, get
from trainwarden_remediator.policy.situation import Situation, situation_of
from trainwarden_remediator.runtime.clock import Clock

TIMEOUT_SECONDS = 3.0
"""Seconds that the exporter may take; a report must not wait for a host in trouble."""


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The state of the host; a text says why a part is not known."""

    exporter: ExporterState | str
    alerts: ActiveAlerts
    situation: Situation = field(default_factory=lambda: Situation(0.0))
    """What decides who acts, without what the journal has."""
    announced: AnnouncedRuns = field(default_factory=AnnouncedRuns)
    alert_stale_after: float = math.inf
    """Seconds without an alert after which it is over."""
    started: Mapping[WorkerKey, float] = field(default_factory=dict)
    """When an operator started commands of `trainwarden run`: see Setup."""


async def read_current_state(
    setup: Setup, session: aiohttp.ClientSession, clock: Clock
) -> CurrentState:
    """Asks the exporter and Alertmanager, at the same time; never raises for their failures."""
    config = setup.config
    observer = HttpObserver(session, config.exporter, config.alertmanager)
    fetch = alert_fetcher(session, config.alertmanager)
    lister = ActiveAlertLister(config.alertmanager.pull, fetch, clock=clock)
    async with asyncio.TaskGroup() as group:
        exporter = group.create_task(_exporter_state(observer))
        alerts = group.create_task(lister.list())
    holds = await asyncio.to_thread(read_holds, config.hold_file, clock.now())
    situation = replace(situation_of(setup, clock.now()), holds=holds)
    return CurrentState(
        *(exporter.result(), alerts.result(), situation, setup.announced),
        alert_stale_after=config.alert_stale_after,
        started=setup.started,
    )


async def read_exporter_state(setup: Setup, session: aiohttp.ClientSession) -> ExporterState | None:
    """Asks the exporter; never raises for its failure. None if it does not answer."""
    config = setup.config
    found = await _exporter_state(HttpObserver(session, config.exporter, config.alertmanager))
    return None if isinstance(found, str) else found


async def _exporter_state(observer: HttpObserver) -> ExporterState | str:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await observer.observe()
    except TimeoutError:
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    except ObservationError as error:
        return str(error)


async def mode_in_force(setup: Setup, session: aiohttp.ClientSession) -> str:
    """Returns the mode of the running remediator, as the exporter shows it, else that of the file.

    `--mode`, as `trainwarden up --mode` gives it, is in no file.
    """
    mode = (await running_remediator(setup, session)).get("mode")
    return str(mode) if mode in ("observe", "act") else setup.config.mode


def describe_unread(file: Path, setup: Setup, running: Mapping[str, object]) -> str:
    """Returns why the running remediator does not use `file` as it is now, or "".

    Where the exporter does not show that remediator, says so. `setup` is what the file contains,
    `running` the result of `running_remediator`.
    """
    read_at, own = running.get("config_read_at"), resolved_path(str(file.absolute()))
    if not isinstance(read_at, int | float):
        url = setup.config.exporter.url
        return f"it is not known whether a remediator has read {file}: {url} shows none"
    if (other := running.get("config_file")) != own:
        return f"the running remediator reads {other}, not {file}"
    if file.stat().st_ctime <= read_at:
        return ""
    return (
        f"{file} has changed since the running remediator read it: reload that by SIGHUP, or by"
        " `trainwarden down` and the same `up`"
    )


async def running_remediator(setup: Setup, session: aiohttp.ClientSession) -> Mapping[str, object]:
    """Returns the status of the running remediator, as the exporter shows it; empty without."""
    exporter = setup.config.exporter
    with suppress(ObservationError, TimeoutError, ValueError, KeyError, TypeError, MemoryError):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            body = await get(session, f"{exporter.url}/status.json", RequestCredentials(exporter))
        if isinstance(found := json.loads(body)["remediator"], dict):
            return found
    return {}
