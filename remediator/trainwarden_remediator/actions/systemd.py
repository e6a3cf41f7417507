"""Restarts a worker that is a unit of systemd, by telling its manager to."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

from trainwarden_remediator.actions.base import Announce
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.actions.unitstate import PROPERTIES, kept, parse_unit
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.means.protection import refuse_protected
from trainwarden_remediator.means.systemd import SystemdTarget
from trainwarden_remediator.targets import Target

ANSWER_SECONDS = 15.0
"""How long the manager may take to answer."""

SYSTEMCTL = "systemctl"


class SystemdAction(ManagedAction):
    """Tells systemd to restart one service.

    A restart is one job of the manager's own, which goes on also where the remediator does not.
    """

    in_one = True

    def __init__(self, target: Target, unit: SystemdTarget, *, systemctl: str = SYSTEMCTL) -> None:
        super().__init__(target)
        self._unit = unit
        self._systemctl = systemctl

    def look(self) -> Kept:
        name = self._unit.unit
        properties = ",".join(PROPERTIES)
        said = self._run("show", f"--property={properties}", name, within=ANSWER_SECONDS)
        try:
            unit = parse_unit(said)
        except ValueError as error:
            raise ActionError(f"systemctl show {name}: {error}") from error
        if unit.load not in ("loaded", "masked"):
            raise ActionError(f"{name} is {unit.load}")
        try:
            # It may be an alias of something else.
            for known in unit.names:
                refuse_protected(known)
        except ValueError as error:
            raise ActionError(f"refused: {error}") from error
        return kept(name, unit)

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        if not kept.running:
            return self.start(kept, mark, announce)
        announce("restart", manager="systemd", what=self._unit.unit)
        # One that is stopped meanwhile stays so, and a job that waits is not replaced by this one.
        within = self._unit.grace + self._unit.starts_within
        self._job("try-restart", within=within)
        now = self.look()
        if now.identity == kept.identity:
            raise ActionError(f"{self._unit.unit} was not restarted: {now.hands_off or 'no job'}")
        return None

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        announce("start", manager="systemd", what=self._unit.unit)
        if self._unit.reset_failed:
            self._run("reset-failed", self._unit.unit, within=ANSWER_SECONDS)
        try:
            self._job("start", within=self._unit.starts_within)
        except ActionError as error:
            now = self.look()
            if now.running or now.identity != kept.identity:
                raise
            # What systemctl says then is how the last run of it failed.
            raise ActionError(
                f"systemd refused to start {self._unit.unit} (its start limit, most likely: "
                f"`systemctl reset-failed` lifts that, and so does `reset_failed: true`): {error}"
            ) from error

    def _job(self, verb: str, *, within: float) -> None:
        self._run(verb, "--job-mode=fail", self._unit.unit, within=within + ANSWER_SECONDS)

    def _run(self, verb: str, *arguments: str, within: float) -> str:
        *options, name = arguments
        whose, settings = self._manager()
        command = [self._systemctl, *whose, "--no-pager", "--no-ask-password", verb, *options]
        try:
            result: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603 - a fixed list, the name checked and after `--`
                [*command, "--", name],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=within,
                check=False,
                **settings,
            )
        except subprocess.TimeoutExpired as error:
            # Only the waiting ends here: the manager goes on with its job.
            raise ActionError(
                f"systemctl {verb} {name}: not through within {within:g} s"
            ) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ActionError(f"cannot run {self._systemctl}: {error}") from error
        if result.returncode:
            raise ActionError(f"systemctl {verb} {name}: {_sentence(result.stderr)}")
        return result.stdout

    def _manager(self) -> tuple[list[str], dict[str, Any]]:
        """The options by which the right manager is asked, and how the client is to run."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
        if self._unit.user is None:
            return ["--system"], {"env": environment}
        try:
            account = pwd.getpwnam(self._unit.user)
        except KeyError as error:
            raise ActionError(f"no user {self._unit.user}") from error
        environment |= {"XDG_RUNTIME_DIR": f"/run/user/{account.pw_uid}"}
        settings: dict[str, Any] = {"env": environment}
        if account.pw_uid != os.geteuid():
            # A user's manager answers to that user alone.
            settings |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return ["--user"], settings


def _sentence(said: str) -> str:
    """What systemctl complained of, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " ".join(lines)[:300] or "it failed and did not say why"
