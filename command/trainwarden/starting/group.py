"""Starts the commands of `trainwarden.yml` in order, and ends them together."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from trainwarden.run.announcement import read_content, running_pid
from trainwarden.run.folder import run_files, state_folder
from trainwarden.run.policy import ON_FAILURE
from trainwarden.starting.run_file import RUN_FILE, CommandConfig, finishing, options_of

POLL_SECONDS = 0.2
TIMEOUT_SECONDS = 3.0
"""Timeout of one request to a server that starts."""
REMOTE_SECONDS = 600.0
"""How long an address here is asked for a server that may run elsewhere."""


class StartError(Exception):
    """A command was not started, or ended before it was ready."""


class StopRequest:
    """Ctrl-C and SIGTERM from now on: noted, so that no start is left half done."""

    def __init__(self) -> None:
        self._is_made = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raises KeyboardInterrupt once a stop was requested."""
        if self._is_made:
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: object) -> None:
        self._is_made = True


def start_all(
    run: str,
    commands: Mapping[str, CommandConfig],
    folder: Path,
    *,
    started: list[Path],
    stop: StopRequest,
) -> None:
    """Starts `commands` in the background, each once the one before is ready.

    Appends the announcement of each to `started`, also if a later one fails. Raises StartError and
    KeyboardInterrupt.
    """
    for worker, one in commands.items():
        announcement = run_files(state_folder(), run, worker).announcement
        _start(run, worker, one, folder)
        started.append(announcement)
        stop.check()
        if (address := one.ready_address) is not None:
            _wait_until_ready(worker, announcement, address, stop, client=one.remote_client)


def describe_end(run: str, commands: Mapping[str, CommandConfig], *, detach: bool) -> str:
    """Returns which commands the run waits for, and what becomes of the others."""
    waited = finishing(commands)
    others = [name for name in commands if name not in waited]
    hint = f" (`finishes: false` in {RUN_FILE} for a command that never ends)" if waited[1:] else ""
    line = f"{run}: the run ends when {_listed(waited, 'has', 'have')} ended{hint}"
    if not others:
        return line
    if detach:
        return f"{line}; {_listed(others, 'goes', 'go')} on then: `trainwarden stop {run}`"
    return f"{line}; {_listed(others, 'is', 'are')} stopped then"


class EndNotices:
    """Says of each command that has ended how long the run goes on: some never end."""

    def __init__(self, finishing: Sequence[Path]) -> None:
        self._left = list(finishing)

    def wait(self) -> bool:
        """Returns whether none of them runs any more."""
        left = [one for one in self._left if running_pid(one)]
        names = [one.stem.partition("@")[2] for one in left]
        if left:
            for path in self._left:
                if path not in left:
                    run, _, worker = path.stem.partition("@")
                    until = f"the run goes on until {_listed(names, 'has', 'have')} ended"
                    end = f"Ctrl-C or `trainwarden stop {run}` ends it"
                    print(f"{worker}: has ended; {until}: {end}", flush=True)  # noqa: T201
        self._left = left
        return not left


def _listed(names: Sequence[str], one: str, several: str) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last} {several}" if first else f"{last} {one}"


def _start(run: str, worker: str, one: CommandConfig, folder: Path) -> None:
    command = [
        *(sys.executable, "-m", "trainwarden", "run", "--detach"),
        *(f"--name={run}", f"--worker={worker}", *options_of(one), "--", *one.command),
    ]
    # in a session of its own: Ctrl-C is for this process
    done = subprocess.run(command, cwd=folder, check=False, start_new_session=True)  # noqa: S603 - the user's own
    if done.returncode != 0:
        raise StartError(f"{worker} was not started")


def _wait_until_ready(
    worker: str, announcement: Path, address: str, stop: StopRequest, *, client: str
) -> None:
    """Waits for a server, no longer than REMOTE_SECONDS if `client` may run it elsewhere."""
    hint = f"the server of {client} may answer elsewhere: write where as `ready` in {RUN_FILE}"
    most = f", for at most {REMOTE_SECONDS / 60:g} min: {hint}" if client else ""
    print(f"{worker}: waits until {address} answers{most}", flush=True)  # noqa: T201
    began = time.monotonic()
    while not _answers(address):
        stop.check()
        if client and time.monotonic() - began > REMOTE_SECONDS:
            print(f"{worker}: no answer, goes on without; {hint}", flush=True)  # noqa: T201
            return
        content = read_content(announcement)
        has_failed = content.get("state") == "failed" and content.get("restart") != ON_FAILURE
        if has_failed or not running_pid(announcement):
            last_lines = "".join(f"\n  {line}" for line in content.get("last_lines", ()))
            raise StartError(f"{worker} ended before it was ready{last_lines}")
        time.sleep(POLL_SECONDS)
    print(f"{worker}: ready after {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201


def _answers(address: str) -> bool:
    parts = urlsplit(address)
    try:
        if parts.scheme == "tcp":
            where = (parts.hostname or "", parts.port or 0)
            with socket.create_connection(where, timeout=TIMEOUT_SECONDS):
                return True
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS):  # noqa: S310 - http, by the model
            return True  # a status of 2xx: others are errors
    except (OSError, http.client.HTTPException):  # an HTTPError is an OSError
        return False
