"""Makes supervisord restart a program that hangs; on its own it only restarts programs that end.

An event listener of supervisord's (http://supervisord.org/events.html): it asks each program every
five seconds whether its work goes on. systemd's WatchdogSec does the same for the units.

    watch.py SOCKET NAME=URL ...
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import supervision

ANSWER_SECONDS = 4.0
FAILURES, FIRST_FAILURES = 6, 36
"""So often in a row a program must fail to answer: half a minute, and three minutes for a program
that has not answered since its start."""


@dataclass(slots=True)
class _Seen:
    pid: int
    answered: bool = False
    failures: int = 0


class Watch:
    """Counts missed answers per process."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def hangs(self, program: supervision.Program, *, well: bool) -> bool:
        """Whether it is to be ended, now that it was asked again."""
        seen = self._seen.get(program.name)
        if seen is None or seen.pid != program.pid:
            seen = self._seen[program.name] = _Seen(program.pid)
        if well or program.state != "RUNNING":
            seen.answered, seen.failures = seen.answered or well, 0
            return False
        seen.failures += 1
        if seen.failures < (FAILURES if seen.answered else FIRST_FAILURES):
            return False
        seen.failures = 0
        return True


def is_well(url: str) -> bool:
    """Whether a program says that its work goes on."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)  # noqa: PLR2004 - OK
    except (OSError, ValueError, urllib.error.HTTPError):
        return False


def look(watch: Watch, socket: Path, urls: Mapping[str, str], log: TextIO) -> None:
    """Ask all programs once, and kill the hung ones."""
    programs = supervision.read_programs(socket)
    # at once: while several hang, each must still be asked every five seconds
    with ThreadPoolExecutor(len(urls)) as asking:
        well = dict(zip(urls, asking.map(is_well, urls.values()), strict=True))
    for name in urls:
        program = programs.get(name)
        if program is not None and watch.hangs(program, well=well[name]):
            print(f"{name} (pid {program.pid}) hangs, and is killed", file=log, flush=True)
            supervision.kill(socket, name)


def main(arguments: list[str], events: TextIO, answers: TextIO, log: TextIO) -> None:
    """Answer supervisord's events until it ends."""
    socket, *pairs = arguments
    urls = dict(pair.split("=", 1) for pair in pairs)
    watch = Watch()
    while True:
        answers.write("READY\n")
        answers.flush()
        header = events.readline()
        if not header:
            return
        fields = dict(field.split(":", 1) for field in header.split())
        events.read(int(fields["len"]))
        try:
            look(watch, Path(socket), urls, log)
        except OSError as error:
            print(f"cannot ask supervisord: {error}", file=log, flush=True)
        answers.write("RESULT 2\nOK")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:], sys.stdin, sys.stdout, sys.stderr)
