"""Reads a running program's files anew, and remembers whether that went well."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from trainwarden_exporter.exceptions import ConfigError, Problem

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]
"""Reads one file and puts it in force. Raises ConfigError and keeps the last good one otherwise."""


class Reloader:
    """Reloads the configuration, then whatever else was added by `also`; one reload at a time.

    Being built counts as the first success: a program only starts with a good configuration.
    """

    def __init__(self, configuration: Step, *, now: Callable[[], float] = time.time) -> None:
        self._configuration = configuration
        self._others: list[Step] = []
        self._one_at_a_time = asyncio.Lock()
        self._now = now
        self.problems: tuple[Problem, ...] = ()
        """What was wrong with the configuration at the last reload; empty when it went well."""
        self.success_timestamp = now()
        """Unix time of the last good reload of the configuration."""

    @property
    def successful(self) -> bool:
        """Whether the last reload of the configuration went well."""
        return not self.problems

    def also(self, step: Step) -> None:
        """Run `step` at each reload too, after the configuration and whether that is good or not.

        Its success does not count in `successful`.
        """
        self._others.append(step)

    async def reload(self) -> None:
        """Reload all. Raises ConfigError with every problem of every file, each logged."""
        async with self._one_at_a_time:
            self.problems = await _problems(self._configuration)
            if self.successful:
                self.success_timestamp = self._now()
            problems = self.problems
            for step in self._others:
                problems += await _problems(step)
        for problem in problems:
            log.error("reload failed", extra={"problem": str(problem)})
        if problems:
            raise ConfigError(*problems)
        log.info("reloaded")


async def _problems(step: Step) -> tuple[Problem, ...]:
    try:
        await step()
    except ConfigError as error:
        return error.problems
    return ()
