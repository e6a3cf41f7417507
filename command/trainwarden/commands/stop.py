"""Stop a run that `trainwarden run` started, and do not start it again.

Sends SIGTERM to its command, and SIGKILL to what is left of it after the grace. A run that has
failed is dismissed: it leaves the page, and its alerts end.
"""

from __future__ import annotations

import argparse
import os
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
    from trainwarden.run.folder import run_files, state_folder  # noqa: PLC0415
    from trainwarden.run.start import check_name  # noqa: PLC0415

    for name in (options.run, options.worker):
        check_name(name)
    folder = state_folder()
    pattern = f"{options.run}@{options.worker or '*'}.json"
    announced = sorted((folder / "runs.d").glob(pattern))
    running = [path for path in announced if running_pid(path)]
    dismissed = [path for path in announced if path not in running and dismiss(path)]
    for path in dismissed:
        print(f"{options.run}/{path.stem.partition('@')[2]}: had failed; dismissed")
    if not running and not dismissed:
        raise ValueError(f"no run named {options.run} is running ({folder / 'runs.d'})")
    problems = 0
    for path in running:
        worker = path.stem.partition("@")[2]
        problem = stop(run_files(folder, options.run, worker).socket, options.grace)
        print(f"{options.run}/{worker}: {problem or 'stopped'}")
        problems += bool(problem)
    return min(problems, 1)


def stop(path: Path, grace: float) -> str:
    """Stops the run that listens at `path`. Returns why it could not, or ""."""
    from trainwarden_exporter.processes.run_socket import ask_run  # noqa: PLC0415

    timeout = grace + MARGIN_SECONDS
    try:
        answer = ask_run(path, owner=os.geteuid(), timeout=timeout, command="stop", grace=grace)
    except (OSError, ValueError) as error:
        return f"not stopped: its `trainwarden run` does not answer: {error}"
    return "" if answer.get("ok") else f"not stopped: {answer.get('error')}"
