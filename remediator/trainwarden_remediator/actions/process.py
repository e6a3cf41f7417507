"""Restarts a worker that is a plain process: its tree is ended, then its command line started.

Processes are signalled through pidfds (pidfd_open(2)): one is opened first, and only then is the
process behind it checked, so that a pid given to a stranger meanwhile is never signalled.
"""

from __future__ import annotations

import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import IO, Any

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.matching import Matcher, Selector, Tree, WorkerKey
from trainwarden_exporter.procfs import (
    Identity,
    Process,
    descendants,
    read_environment,
    read_process,
    read_processes,
)
from trainwarden_remediator.actions.base import Action, Announce, Standing
from trainwarden_remediator.config import ProcessTarget, Target
from trainwarden_remediator.exceptions import ActionError

MARK = "TRAINWARDEN_ACTION"
"""The environment variable that says which action started a process: after a crash of the
remediator it tells a start that took place from one that did not."""

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")
"""Variables of the remediator's own environment that what it starts may see, beside LC_*."""

REAP_SECONDS = 5.0
"""How long the kernel may take to end a process that was sent SIGKILL."""

PROTECTED = frozenset(
    {
        "init",
        "systemd",
        "sshd",
        "dockerd",
        "containerd",
        "supervisord",
        "prometheus",
        "prometheus-aler",
        "alertmanager",
        "trainwarden-exp",
        "trainwarden-rem",
    }
)
"""Names, cut to 15 characters as the kernel does, of what is never part of a worker."""


class ProcessAction(Action):
    """Ends the processes its worker's selector finds, and starts the configured command line."""

    def __init__(self, target: Target, selectors: Mapping[WorkerKey, Selector]) -> None:
        self._target = target
        # All selectors, not the target's alone: what belongs to another worker is not this one's.
        self._matcher = Matcher(selectors)
        self._children: list[subprocess.Popen[bytes]] = []

    def processes(self) -> Collection[Identity]:
        return [process.identity for process in self._tree().members if process.alive]

    def restart(self, action: int, announce: Announce) -> Mapping[str, Any]:
        tree = self._tree()
        if reason := protected(tree.members, read_processes()):
            raise ActionError(f"refused: {reason}")
        announce("stop", processes=[process.pid for process in tree.members])
        killed = stop(tree, grace=self._target.process.grace)
        return {"killed": list(killed), **self.finish(action, announce)}

    def finish(self, action: int, announce: Announce) -> Mapping[str, Any]:
        if others := [root.pid for root in self._tree().roots if root.alive]:
            # Whatever else restarts this worker was quicker; a second copy would only do harm.
            return {"started_by": "another", "processes": others}
        announce("start", command=list(self._target.process.start))
        child = start(self._target.process, action)
        self._children.append(child)
        return {"started_by": "trainwarden", "processes": [child.pid]}

    def standing(self, action: int, before: Collection[Identity]) -> Standing:
        alive = {process.identity for process in self._tree().members if process.alive}
        if any(_mark(identity) == str(action) for identity in alive):
            return Standing.STARTED
        # Asked one by one: a child that has outlived its root is found by no selector.
        if any(_lives(identity) for identity in before):
            return Standing.UNTOUCHED
        return Standing.REPLACED if alive else Standing.ENDED

    def tidy(self) -> bool:
        # In place: a restart may be adding to the list meanwhile.
        for child in tuple(self._children):
            if child.poll() is not None:
                self._children.remove(child)
        return bool(self._children)

    def _tree(self) -> Tree:
        try:
            return self._matcher.find()[self._target.key]
        except CollectError as error:
            raise ActionError(f"cannot see the processes: {error}") from error


def protected(tree: Iterable[Process], processes: Mapping[int, Process]) -> str:
    """Why a tree must not be ended, or nothing.

    It must not hold this program, one that this program runs under, or one that keeps the box, or
    the watch over it, alive.
    """
    own = set()
    pid = os.getpid()
    while pid in processes and pid not in own:
        own.add(pid)
        pid = processes[pid].parent_pid
    for process in tree:
        if process.pid in own or process.pid == 1:
            return f"{process.name} ({process.pid}) is what the remediator runs under"
        if process.name in PROTECTED:
            return f"{process.name} ({process.pid}) is protected"
    return ""


def stop(tree: Tree, *, grace: float) -> tuple[int, ...]:
    """End every process of `tree`. Returns the pids that had to be killed.

    SIGTERM goes to the roots alone, for they know how to end their children; when they are gone,
    to what outlived them; after `grace` seconds SIGKILL goes to all that is left, and to what it
    has forked meanwhile. Raises ActionError if anything survives that: a process in state D waits
    in the kernel and cannot be ended at all.
    """
    deadline = time.monotonic() + grace
    with ExitStack() as stack:
        roots = _hold(stack, (process.identity for process in tree.roots))
        held = roots | _hold(stack, (process.identity for process in tree.members))
        _send(roots, signal.SIGTERM)
        _wait(roots, deadline)
        _send({identity: fd for identity, fd in held.items() if identity not in roots},
              signal.SIGTERM)  # fmt: skip
        _wait(held, deadline)
        processes = read_processes()
        alive = [i.pid for i, fd in held.items() if not _ended(fd) and i.pid in processes]
        held |= _hold(stack, (processes[pid].identity for pid in descendants(processes, alive)))
        left = {identity: fd for identity, fd in held.items() if not _ended(fd)}
        _send(left, signal.SIGKILL)
        _wait(left, time.monotonic() + REAP_SECONDS)
        survivors = [identity.pid for identity, fd in left.items() if not _ended(fd)]
    if survivors:
        raise ActionError(f"not even SIGKILL ended {survivors}; nothing was started in their place")
    return tuple(identity.pid for identity in left)


Pidfds = Mapping[Identity, int]


def _hold(stack: ExitStack, identities: Iterable[Identity]) -> dict[Identity, int]:
    """Pidfds of those processes that are still the ones meant, closed with `stack`."""
    held = {}
    for identity in identities:
        try:
            fd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            continue
        stack.callback(os.close, fd)
        process = read_process(identity.pid)
        if process is not None and process.identity == identity:
            held[identity] = fd
    return held


def _send(pidfds: Pidfds, number: signal.Signals) -> None:
    for identity, fd in pidfds.items():
        try:
            signal.pidfd_send_signal(fd, number)
            if number == signal.SIGTERM:
                # A stopped process would not notice that it is asked to end.
                signal.pidfd_send_signal(fd, signal.SIGCONT)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise ActionError(f"not allowed to signal process {identity.pid}") from error


def _wait(pidfds: Pidfds, deadline: float) -> None:
    """Until all have ended, or `deadline` on the monotonic clock."""
    waiting = select.poll()
    open_fds = set(pidfds.values())
    for fd in open_fds:
        waiting.register(fd, select.POLLIN)
    while open_fds and (left := deadline - time.monotonic()) > 0:
        for fd, _ in waiting.poll(left * 1000):
            waiting.unregister(fd)
            open_fds.discard(fd)


def _ended(pidfd: int) -> bool:
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(0))


def start(process: ProcessTarget, action: int) -> subprocess.Popen[bytes]:
    """Start the configured command line in a session of its own, its output appended to its log.

    Raises ActionError naming what stands in the way.
    """
    try:
        with ExitStack() as stack:
            output: IO[bytes] | int = subprocess.DEVNULL
            if process.log is not None:
                process.log.parent.mkdir(parents=True, exist_ok=True)
                output = stack.enter_context(process.log.open("ab"))
            account = None if process.user is None else pwd.getpwnam(process.user)
            return subprocess.Popen(  # noqa: S603 - the operator's own argument list, no shell
                process.start,
                cwd=process.cwd,
                env=_environment(process, account, action),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=(
                    None if account is None else os.getgrouplist(account.pw_name, account.pw_gid)
                ),
            )
    except KeyError as error:
        raise ActionError(f"cannot start {process.start[0]}: no user {process.user}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ActionError(f"cannot start {process.start[0]}: {error}") from error


def _environment(
    process: ProcessTarget, account: pwd.struct_passwd | None, action: int
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }
    if account is not None:
        environment |= {"HOME": account.pw_dir, "USER": account.pw_name}
        environment |= {"LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    return {**environment, **process.environment, MARK: str(action)}


def _lives(identity: Identity) -> bool:
    process = read_process(identity.pid)
    return process is not None and process.alive and process.identity == identity


def _mark(identity: Identity) -> str | None:
    environment = read_environment(identity.pid)
    return None if environment is None else environment.get(MARK)
