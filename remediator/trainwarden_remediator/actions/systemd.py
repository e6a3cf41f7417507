"""Restarts a worker that is a systemd service, through systemctl."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

from trainwarden_exporter.processes.systemd_units import PROPERTIES, Unit, parse_unit
from trainwarden_remediator.actions.base import RecordStep, action_errors
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.config.restart_methods.base import refuse_protected
from trainwarden_remediator.config.restart_methods.systemd import SystemdTarget
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError

ANSWER_SECONDS = 15.0
"""Timeout of a request to systemd, in addition to the time that a job may take."""

SYSTEMCTL = "systemctl"


class SystemdAction(ManagedAction[SystemdTarget]):
    """Restarts one service.

    A restart is one systemd job, which completes even if the remediator stops meanwhile.
    """

    restarts_atomically = True

    def __init__(self, target: Target, unit: SystemdTarget, *, systemctl: str = SYSTEMCTL) -> None:
        super().__init__(target, unit)
        self._systemctl = systemctl

    def read_instance(self) -> ManagedInstance:
        name = self._method.unit
        properties = ",".join(PROPERTIES)
        output = self._run("show", f"--property={properties}", name, within=ANSWER_SECONDS)
        with action_errors(f"systemctl show {name}", ValueError):
            unit = parse_unit(output)
        if unit.load not in ("loaded", "masked"):
            raise ActionError(f"{name} is {unit.load}")
        with action_errors("refused", ValueError):
            # The configured name may be an alias of a protected unit.
            for known in unit.names.split():
                refuse_protected(known)
        return managed_instance(name, unit)

    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        if not instance.running:
            return self.start(instance, token, record_step)
        record_step("restart", manager="systemd", what=self._method.unit)
        # try-restart leaves a unit stopped that was stopped meanwhile; --job-mode=fail does not
        # replace a queued job.
        within = self._method.grace + self._method.start_timeout
        self._job("try-restart", within=within)
        now = self.read_instance()
        if now.identity == instance.identity:
            raise ActionError(f"{self._method.unit} was not restarted: {now.blocker or 'no job'}")
        return None

    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        record_step("start", manager="systemd", what=self._method.unit)
        if self._method.reset_failed:
            self._run("reset-failed", self._method.unit, within=ANSWER_SECONDS)
        try:
            self._job("start", within=self._method.start_timeout)
        except ActionError as error:
            now = self.read_instance()
            if now.running or now.identity != instance.identity:
                raise
            # Here systemctl only reports how the last run failed.
            raise ActionError(
                f"systemd refused to start {self._method.unit} (probably its start limit: reset it "
                f"with `systemctl reset-failed` or set `reset_failed: true`): {error}"
            ) from error

    def _job(self, verb: str, *, within: float) -> None:
        self._run(verb, "--job-mode=fail", self._method.unit, within=within + ANSWER_SECONDS)

    def _run(self, verb: str, *arguments: str, within: float) -> str:
        *options, name = arguments
        scope, settings = self._manager()
        command = [self._systemctl, *scope, "--no-pager", "--no-ask-password", verb, *options]
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
            # Only the wait ends here: systemd continues the job.
            raise ActionError(
                f"systemctl {verb} {name}: not through within {within:g} s"
            ) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ActionError(f"cannot run {self._systemctl}: {error}") from error
        if result.returncode:
            raise ActionError(f"systemctl {verb} {name}: {_one_line(result.stderr)}")
        return result.stdout

    def _manager(self) -> tuple[list[str], dict[str, Any]]:
        """Returns the systemctl options for the unit's manager, and the subprocess settings."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
        if self._method.user is None:
            return ["--system"], {"env": environment}
        try:
            account = pwd.getpwnam(self._method.user)
        except KeyError as error:
            raise ActionError(f"no user {self._method.user}") from error
        environment |= {"XDG_RUNTIME_DIR": f"/run/user/{account.pw_uid}"}
        settings: dict[str, Any] = {"env": environment}
        if account.pw_uid != os.geteuid():
            # A user manager only accepts requests of its user.
            settings |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return ["--user"], settings


def _one_line(output: str) -> str:
    """Returns the error output of systemctl in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " ".join(lines)[:300] or "failed without an error message"


def managed_instance(name: str, unit: Unit) -> ManagedInstance:
    """Returns the unit `name` as an instance, with the reason not to act on it."""
    return ManagedInstance(
        identity=f"{name} {unit.invocation or 'never started'}",
        running=not unit.ended,
        stopped=unit.was_stop_requested,
        blocker=_blocker(name, unit),
        pid=unit.main_pid or None,
    )


def _blocker(name: str, unit: Unit) -> str:
    if unit.load == "masked":
        return f"{name} is masked"
    if unit.job:
        return f"a job for {name} is already queued"
    if unit.sub.startswith("auto-restart"):
        return f"systemd is about to start {name} again (its Restart=)"
    if unit.active in ("activating", "deactivating"):
        return f"{name} is {unit.active} ({unit.sub})"
    if unit.was_stop_requested:
        if unit.has_run:
            return f"{name} was stopped on request"
        # Also after a boot that did not start the unit: an operator can enable it.
        return f"{name} is inactive, and systemd has no record of a run"
    return ""
