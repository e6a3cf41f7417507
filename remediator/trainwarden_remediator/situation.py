"""Reads out of the journal what decisions rest on, before anybody looks at the world."""

from __future__ import annotations

import asyncio
import math

from trainwarden_remediator.breaker import BreakerState
from trainwarden_remediator.config import Config, Setup
from trainwarden_remediator.decision import State
from trainwarden_remediator.holdfile import read_holds
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.records import finished_workers


def looks_back(config: Config) -> float:
    """For how long what was done counts against some budget, in seconds."""
    budgets = [*config.targets, *([config.gpu_cleanup] if config.gpu_cleanup else [])]
    window = max((max(b.attempts_window, b.cooldown) for b in budgets), default=0)
    return max(window, config.breaker.within)


async def read_state(journal: Journal, setup: Setup, now: float, *, anew: bool = True) -> State:
    """How things stand at `now` (Unix seconds). Raises JournalError.

    With `anew`, also what was found to be nobody's; without, such an alert is left out until it is
    resolved or was not repeated for too long: nothing but another configuration can change that.
    """
    config = setup.config
    incidents, actions, holds, moments = await asyncio.gather(
        asyncio.to_thread(
            journal.open_incidents,
            strangers_before=math.inf if anew else now - config.forget_after,
        ),
        asyncio.to_thread(journal.past_actions, now - looks_back(config)),
        asyncio.to_thread(read_holds, config.hold_file, now),
        asyncio.to_thread(journal.moments),
    )
    return State(
        setup=setup,
        holds=holds,
        incidents=incidents,
        actions=actions,
        breaker=BreakerState.of(moments),
        finished=finished_workers(moments),
    )
