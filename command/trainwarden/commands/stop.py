"""Stop runs that `trainwarden run` started, and do not start them again.

Sends SIGTERM to their commands, and SIGKILL to what is left of them after the grace. A run that has
failed or finished is dismissed: it leaves the page, and its alerts end; what lives of it is named.
If there is no run of one of the names, the command stops none. Without a name it lists the runs
that go on, and stops none.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

EXAMPLES = """\
examples:
  trainwarden stop train
  trainwarden stop grpo --worker vllm --grace 120
  trainwarden stop train train-2 sweep

exit status: 0 if all have ended or are dismissed, 1 if not, 2 without RUN"""

NO_RUNS = "no run of `trainwarden run` goes on"
NO_RUN_NAMED = 2
"""Exit status of wrong usage: nothing was stopped, which a script must not take for a success."""
_HAD_ENDED = {"finished": "had finished", "failed": "had failed"}
"""How a command that is dismissed had ended."""
DISMISSED = "dismissed: it leaves the page, and its alerts end within half a minute"
MARGIN_SECONDS = 30.0
"""How long the end may take beyond the grace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="*", help="name of a run")
    parser.add_argument("--worker", metavar="NAME", help="only this worker of them")
    parser.add_argument(
        "--grace",
        type=_grace,
        default=30.0,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL (default: %(default)g)",
    )


def _grace(text: str) -> float:
    """Returns a grace that `trainwarden run` accepts."""
    # here: see below
    from trainwarden.run.ending import MAX_GRACE_SECONDS  # noqa: PLC0415

    with suppress(ValueError):
        if 0 <= (seconds := float(text)) <= MAX_GRACE_SECONDS:
            return seconds
    expected = f"expected a number of seconds up to {MAX_GRACE_SECONDS:g}"
    raise argparse.ArgumentTypeError(f"{text!r}: {expected}")


def run(options: argparse.Namespace) -> int:
    # here: `trainwarden stop --help` needs none of it
    from trainwarden.run.announcement import dismiss, list_running, running_pid  # noqa: PLC0415

    if not options.runs:
        lines = list_running()
        heading = "none is stopped without its name; these go on:" if lines else NO_RUNS
        print("\n".join((heading, *lines)))
        return NO_RUN_NAMED
    found = {
        path: bool(running_pid(path))
        for name in options.runs
        for path in _find(name, options.worker)
    }
    ended = (path for path, is_running in found.items() if not is_running)
    dismissed = {path: state for path in ended if (state := dismiss(path))}
    if not dismissed and not any(found.values()):
        raise ValueError("; ".join(map(_describe_end, found)))
    problems = 0
    for path, is_running in found.items():
        if is_running:
            problem = stop(path, options.grace)
            problems += bool(problem)
            print(f"{_name(path)}: {problem or 'stopped'}")
        elif path in dismissed:
            left = _describe_left(path)
            problems += bool(left)
            printed = f"{_name(path)}: {_HAD_ENDED.get(dismissed[path], 'had ended')}; {DISMISSED}"
            print("; ".join(filter(None, (printed, left))))
        else:
            print(_describe_end(path))
    return min(problems, 1)


def _find(run: str, worker: str | None) -> list[Path]:
    """Returns the announcements of a run. Raises ValueError if there is none."""
    # here: see above
    from trainwarden.run.announcement import find_running  # noqa: PLC0415
    from trainwarden.run.folder import find_all_announcements, find_announcements  # noqa: PLC0415
    from trainwarden_exporter.runtime.similar_names import did_you_mean  # noqa: PLC0415

    if announced := find_announcements(run, worker):
        return announced
    others = (_name(path) for paths in find_running().values() for path in paths)
    names = ", ".join(others) or "none"
    which = "/".join(filter(None, (run, worker)))
    known = find_all_announcements()  # a run that has failed can be named, too
    own = (_name(path) for path in known.get(run, ()))
    hint = did_you_mean(which, own if run in known else known)
    raise ValueError(f"no run named {which} is running; running: {names}{hint}")


def _describe_left(announcement: Path) -> str:
    """Returns which processes of a run live though its `trainwarden run` was killed, or ""."""
    # here: see above
    from trainwarden.run.announcement import read_content  # noqa: PLC0415
    from trainwarden.run.left_processes import describe_left  # noqa: PLC0415

    return describe_left(read_content(announcement).get("run_id", ""), sys.maxsize)


def _name(announcement: Path) -> str:
    return announcement.stem.replace("@", "/")


def _describe_end(announcement: Path) -> str:
    """Returns when an announced run has ended, and how to start it again."""
    # here: see above
    from trainwarden.run.announcement import end_of, read_content  # noqa: PLC0415
    from trainwarden_exporter.processes.announcements import Announcement  # noqa: PLC0415

    content = read_content(announcement)
    if content.get("starts") == 0:
        return f"{_name(announcement)} has not started: {', '.join(content.get('last_lines', ()))}"
    how = _HAD_ENDED.get(end_of(content), "is stopped").replace("had", "has")
    ended = content.get("ended_at")
    since = time.strftime(", since %H:%M:%S on %d %b %Y", time.localtime(ended)) if ended else ""
    typed = ""
    with suppress(ValueError):  # the file of another version
        typed = Announcement.model_validate(content).start_command
    again = f"; `{typed}` starts it again" if typed else ""
    return f"{_name(announcement)} {how}{since}{again}"


def stop(announcement: Path, grace: float, *, with_run: bool = False) -> str:
    """Stops an announced command. Returns why it could not, or "".

    `with_run`: not at a user's request, but because the rest of its run has ended.
    """
    from trainwarden_exporter.processes.run_socket import ask_run  # noqa: PLC0415

    timeout = grace + MARGIN_SECONDS
    try:
        path = announcement.with_suffix(".sock")
        answer = ask_run(
            path,
            owner=os.geteuid(),
            timeout=timeout,
            command="stop",
            grace=grace,
            with_run=with_run,
        )
    except (OSError, ValueError) as error:
        return f"not stopped: its `trainwarden run` does not answer: {error}"
    return "" if answer.get("ok") else f"not stopped: {answer.get('error')}"
