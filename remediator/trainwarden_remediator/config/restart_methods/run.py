"""Restart method `run`: a command that `trainwarden run` started and announces."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from trainwarden_exporter.config_file.types import Seconds
from trainwarden_exporter.processes.announcements import AnnouncedRuns, AnnouncedWorker
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_remediator.config.restart_methods.base import RestartMethod

START_YOURSELF = ": type `trainwarden run --detach -- COMMAND`"
_ENDED = "its `trainwarden run` has ended, so that nobody can start it again"
NEVER_WORKS = f"{_ENDED}, as it can never start"
"""How the reason begins where a further start cannot help."""
WRAPPER_ENDED = f"{_ENDED}{START_YOURSELF}"
"""Why a worker is not restarted, where its command is not known; the exporter's page shows it."""
_START = re.compile(r": type `([^`]+)`$")
RESTARTS_ITSELF = (
    "its `trainwarden run --restart on-failure` starts it again after a failure; the remediator"
    " restarts it only if it hangs or exceeds a limit"
)
"""The same while it has failed: two counts of attempts would add up."""


class RunTarget(RestartMethod):
    """A worker that `trainwarden run` stops and starts; the announcement is its configuration."""

    run: str
    """What is restarted, for the status page."""
    socket: Path
    """The socket at which `trainwarden run` answers."""
    owner: int
    """The account (uid) of the run."""
    wrapper: Identity | None = None
    """The process of `trainwarden run`, if it is announced."""
    wrapper_ended: bool = False
    """Whether that process has ended: nobody can start the worker again."""
    finished: bool = False
    """Whether the command has ended with exit status 0, which is the end of the run."""
    failure: str = ""
    """How the command failed, as its `trainwarden run` announces it; empty unless it has."""
    never_works: bool = False
    """Whether that was as no further start can work."""
    start_command: str = ""
    """What an operator types to start it again; "" if not known."""
    grace: Seconds = 30
    """Seconds between SIGTERM and SIGKILL."""

    @property
    def summary(self) -> str:
        return f"trainwarden run, {self.run}"

    @property
    def why_ended(self) -> str:
        """Why it is not restarted once its `trainwarden run` has ended."""
        start = self.start_command
        typed = f": type `{start}`" if start and "`" not in start else START_YOURSELF
        return f"{NEVER_WORKS if self.never_works else _ENDED}{typed}"


def start_in(why: str) -> tuple[str, str]:
    """Returns the end of such a reason, which names a command, and that command; "" if not known.

    The end is "" in any other reason.
    """
    found = _START.search(why) if why.startswith(_ENDED) else None
    if found is None:
        return "", ""
    return found[0], found[1] if found[0] != START_YOURSELF else ""


def run_methods(announced: AnnouncedRuns) -> Mapping[WorkerKey, RunTarget]:
    """Returns the restart method of each announced worker that may be restarted on request."""
    return {
        key: RunTarget(
            run="/".join(key),
            socket=one.announcement.socket,
            owner=one.uid,
            wrapper=one.announcement.wrapper,
            wrapper_ended=has_ended(one.announcement.wrapper),
            never_works=one.announcement.never_works,
            start_command=one.announcement.start_command,
            finished=one.announcement.state == "finished",
            failure=one.announcement.failure,
        )
        for key, one in announced.workers.items()
        if one.announcement.socket is not None and _may_restart(one)
    }


def has_ended(wrapper: Identity | None) -> bool:
    """Whether an announced process has ended. Blocks."""
    if wrapper is None:
        return False
    process = read_process(wrapper.pid)
    return process is None or process.identity != wrapper or not process.alive


def _may_restart(worker: AnnouncedWorker) -> bool:
    return not why_no_target(worker)


def why_no_target(worker: AnnouncedWorker) -> str:
    """Returns why an announced worker must not be restarted, or ""."""
    if worker.announcement.restart == "never":
        return "it was started with `--restart never`"
    # an account other than root can restart nothing of a third one, so it has no target there
    own = os.geteuid() in (0, worker.uid)
    return "" if own else "it runs under another account, and the remediator not under root"
