"""Loads the state that decisions rest on from the journal and the hold file."""

from __future__ import annotations

import asyncio
import math

from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.holds.hold_file import read_holds
from trainwarden_remediator.journal.approvals import valid_approvals
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import actions_since_resume, finished_workers
from trainwarden_remediator.model import BreakerState
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.runtime.clock import Clock


def budget_window(config: Config) -> float:
    """Returns the seconds for which an action counts against a budget or the breaker."""
    budgets = [*config.targets, *([config.gpu_cleanup] if config.gpu_cleanup else [])]
    window = max((max(b.attempts_window, b.cooldown) for b in budgets), default=0)
    return max(window, config.breaker.window)


async def read_state(
    journal: Journal, setup: Setup, clock: Clock, *, include_unowned: bool
) -> PolicyState:
    """Returns the policy state now, without a snapshot. Raises JournalError.

    Without `include_unowned`, firing alerts that match no playbook or target are left out until
    they expire: only another configuration can change the decision about them.
    """
    config, now = setup.config, clock.now()
    incidents, actions, holds, timestamps = await asyncio.gather(
        asyncio.to_thread(
            journal.open_incidents,
            unowned_received_before=math.inf if include_unowned else now - config.alert_stale_after,
        ),
        asyncio.to_thread(journal.past_actions, now - budget_window(config)),
        asyncio.to_thread(read_holds, config.hold_file, now, clock.since_boot()),
        asyncio.to_thread(journal.timestamps),
    )
    return PolicyState(
        setup=setup,
        holds=holds,
        incidents=incidents,
        actions=actions_since_resume(actions, timestamps),
        breaker=BreakerState.from_timestamps(timestamps),
        approvals=valid_approvals(timestamps, now) if config.mode == "observe" else {},
        finished=finished_workers(timestamps),
        watchdog_at=timestamps.get("watchdog", 0.0),
    )
