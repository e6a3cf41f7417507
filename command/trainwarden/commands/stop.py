"""Stop a run that `trainwarden run` started, and do not start it again.

Sends SIGTERM to its command, and SIGKILL to what is left of it after the grace. A run that has
failed is dismissed: it leaves the page, and its alerts end.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

EXAMPLES = """\
examples:
  trainwarden stop train
  trainwarden stop grpo --worker vllm --grace 120

exit status: 0 if the run has ended or is dismissed, 1 if not"""

MARGIN_SECONDS = 30.0
"""How long the end may take beyond the grace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of the run")
    parser.add_argument("--worker", metavar="NAME", help="only this worker of the run")
    parser.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL (default: %(default)g)",
    )


def run(options: argparse.Namespace) -> int:
    # here: `trainwarden stop --help` needs none of it
    from trainwarden.run.announcement import dismiss, running_pid  # noqa: PLC0415
    from trainwarden.run.folder import find_announcements, state_folder  # noqa: PLC0415

    announced = find_announcements(options.run, options.worker)
    running = [path for path in announced if running_pid(path)]
    dismissed = [path for path in announced if path not in running and dismiss(path)]
    for path in dismissed:
        print(f"{options.run}/{path.stem.partition('@')[2]}: had failed; dismissed")
    if announced and not running and not dismissed:
        raise ValueError("; ".join(map(_describe_end, announced)))
    if not announced:
        others = sorted(filter(running_pid, (state_folder() / "runs.d").glob("*.json")))
        names = ", ".join(path.stem.replace("@", "/") for path in others) or "none"
        which = "/".join(filter(None, (options.run, options.worker)))
        raise ValueError(f"no run named {which} is running; running: {names}")
    problems = 0
    for path in running:
        problem = stop(path, options.grace)
        print(f"{options.run}/{path.stem.partition('@')[2]}: {problem or 'stopped'}")
        problems += bool(problem)
    return min(problems, 1)


def _describe_end(announcement: Path) -> str:
    """Returns when an announced run has ended, and how to start it again."""
    # here: see above
    from trainwarden.run.announcement import read_content  # noqa: PLC0415

    content = read_content(announcement)
    how = "has finished" if content.get("state") == "finished" else "is stopped"
    ended = content.get("ended_at")
    since = time.strftime(", since %H:%M:%S on %d %b %Y", time.localtime(ended)) if ended else ""
    again = f"; `trainwarden run` in {content.get('cwd', 'its folder')} starts it again"
    return f"{announcement.stem.replace('@', '/')} {how}{since}{again}"


def stop(announcement: Path, grace: float) -> str:
    """Stops an announced run. Returns why it could not, or ""."""
    from trainwarden_exporter.processes.run_socket import ask_run  # noqa: PLC0415

    timeout = grace + MARGIN_SECONDS
    try:
        path = announcement.with_suffix(".sock")
        answer = ask_run(path, owner=os.geteuid(), timeout=timeout, command="stop", grace=grace)
    except (OSError, ValueError) as error:
        return f"not stopped: its `trainwarden run` does not answer: {error}"
    return "" if answer.get("ok") else f"not stopped: {answer.get('error')}"
