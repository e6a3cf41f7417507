"""Restarts a worker that is a program of supervisord, by telling it to."""

from __future__ import annotations

import logging

from trainwarden_remediator.actions.base import Announce
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.actions.supervisorcalls import (
    ALREADY_STARTED,
    NOT_RUNNING,
    Program,
    Supervisord,
    SupervisordError,
)
from trainwarden_remediator.exceptions import ActionError, JournalError, LeftAloneError
from trainwarden_remediator.means.supervisor import SupervisorTarget
from trainwarden_remediator.targets import Target

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""How long supervisord may take to answer."""

SETTLED_SECONDS = 3
"""A program that ended less than so long ago may yet be started again by supervisord itself."""


class SupervisorAction(ManagedAction):
    """Tells supervisord to stop one program, and to start it."""

    in_one = False

    def __init__(self, target: Target, program: SupervisorTarget) -> None:
        super().__init__(target)
        self._program = program

    def look(self) -> Kept:
        name = self._program.program
        try:
            found = self._supervisord().info(name, within=ANSWER_SECONDS)
        except SupervisordError as error:
            raise ActionError(f"cannot ask supervisord about {name}: {error}") from error
        return kept(name, found)

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        name = self._program.program
        if kept.running:
            announce("stop", manager="supervisord", what=name)
            try:
                self._supervisord().stop(name, within=self._program.grace + ANSWER_SECONDS)
            except SupervisordError as error:
                if error.fault != NOT_RUNNING:
                    raise ActionError(f"supervisord, stop {name}: {error}") from error
                # It ended before it was told to: by itself, or because another told it.
                if hands_off := self.look().hands_off:
                    raise LeftAloneError(f"refused: {hands_off}") from error
        try:
            announce("start", manager="supervisord", what=name)
        except JournalError as error:
            if not kept.running:
                raise
            # Its stop is written down: better than a worker that stays ended until the disk has
            # room again.
            log.error("journal failed", extra={"error": str(error)})
        self._start()

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        announce("start", manager="supervisord", what=self._program.program)
        self._start()

    def _start(self) -> None:
        name = self._program.program
        try:
            self._supervisord().start(name, within=self._program.starts_within + ANSWER_SECONDS)
        except SupervisordError as error:
            if error.fault != ALREADY_STARTED:
                raise ActionError(f"supervisord, start {name}: {error}") from error

    def _supervisord(self) -> Supervisord:
        settings = self._program
        account = None
        if settings.username is not None and settings.password_file is not None:
            try:
                password = settings.password_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ActionError(f"cannot read {settings.password_file}: {error}") from error
            account = (settings.username, password)
        return Supervisord(settings.url or settings.socket, account)


def kept(name: str, program: Program) -> Kept:
    """What may be done about the program of that `name`. Pure."""
    return Kept(
        # Not by its pid, which is 0 as soon as it has ended.
        identity=f"{name} started {program.start or 'never'}",
        running=program.state in ("STARTING", "RUNNING", "STOPPING"),
        stopped=program.state == "STOPPED",
        hands_off=_hands_off(name, program),
        pid=program.pid or None,
    )


def _hands_off(name: str, program: Program) -> str:
    match program.state:
        case "STOPPED":
            return f"{name} was told to stop" if program.start else f"{name} was never started"
        case "STARTING" | "BACKOFF":
            return f"supervisord is starting {name} itself"
        case "STOPPING":
            return f"{name} is being stopped"
        case "EXITED" if program.now - program.stop < SETTLED_SECONDS:
            return f"{name} has only just ended; supervisord may start it again itself"
        case "UNKNOWN":
            return f"supervisord does not know how {name} stands"
    return ""
