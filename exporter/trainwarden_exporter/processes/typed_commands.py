"""What an operator types to start a run again, or to stop it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwarden_exporter.processes.matching import WorkerKey

_NEVER = re.compile(" --restart[ =]never ")


def as_typed(start_command: str) -> str:
    """Returns a command for a sentence, with what a --detach in it is for: it may be added."""
    typed = f"`{start_command}`"
    options = f"{start_command.partition(' -- ')[0]} "
    if " --detach -- " not in start_command or _NEVER.search(options):
        return typed
    return f"{typed} (in the background, so that a failure is restarted in the mode act)"


def dismissal(key: WorkerKey, known: Iterable[WorkerKey]) -> str:
    """Returns what ends the alerts of a command that has failed and is not to be started again."""
    return f"`{stop_command(key, known)}` dismisses it."


def stop_command(key: WorkerKey, known: Iterable[WorkerKey]) -> str:
    """Returns what stops a command, and not the others of its run, if some are `known`."""
    others = any(one.run == key.run and one != key for one in known)
    return f"trainwarden stop {key.run}{f' --worker {key.worker}' * others}"


def start_again(command: str) -> str:
    """Returns what starts a command that has failed, `Announcement.start_command`; "" without."""
    return f"When its cause is mended: {as_typed(command)}." if command else ""
