"""Runs the stack in the background, and ends it: `trainwarden up --detach`, `trainwarden down`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import claims
from stack import StackError

LAST_LINE = "What happens:"
"""The line of `up` after which the stack is up."""
END_SECONDS = 120.0
POLL_SECONDS = 0.2


def detach(folder: Path, arguments: Sequence[str | Path]) -> int:
    """Run `up` with these arguments in the background.

    Returns 0 once the stack is up, and its exit status if it does not come up. Raises StackError
    if a stack runs in `folder`, whose output goes on.
    """
    if claims.owner(claims.lock_of(folder)) is not None:
        raise claims.already_runs(folder)
    claims.make_folder(folder)
    output = folder.parent / f"{folder.name}.out"
    with claims.open_private(output) as file:
        file.truncate(0)
        child = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("up.py"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if _follow(output, child):
            end = claims.command_to_end(folder)
            print(f"\nIt runs in the background and writes to {output}; end it: {end}")
            return 0
    except KeyboardInterrupt:
        child.terminate()
    return child.wait() or 1


def _follow(output: Path, child: subprocess.Popen[bytes]) -> bool:
    """Print what the stack prints until it is up. Returns False if it ends before."""
    with output.open(encoding="utf-8", errors="replace") as file:
        while True:
            ended = child.poll() is not None
            for line in iter(file.readline, ""):
                if line.strip() == LAST_LINE:
                    return True
                print(line, end="", flush=True)
            if ended:
                return False
            time.sleep(POLL_SECONDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `trainwarden down`."""
    parser.add_argument("--config", type=Path, metavar="FOLDER", help="only the stack of this run")
    parser.add_argument(
        "--folder", type=lambda text: Path(text).resolve(), help="only the stack that runs there"
    )


def run(options: argparse.Namespace) -> int:
    """End the stacks. Returns 1 if one does not end, or if only others run than it ends."""
    try:
        return _end_stacks(options.folder, options.config)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1


def _end_stacks(folder: Path | None, config: Path | None) -> int:
    locks = claims.all_locks()
    elsewhere: list[Path] = []
    if config is not None:
        folder = folder or claims.default_folder(config.resolve())
    if folder is not None:
        locks = [claims.lock_of(folder)]
    else:
        elsewhere = claims.named_folders()
    running = [(lock, one) for lock in locks if (one := claims.owner(lock)) is not None]
    if not running and len(elsewhere) == 1:  # no other can be meant
        locks, elsewhere = [claims.lock_of(elsewhere[0])], []
        running = [(lock, one) for lock in locks if (one := claims.owner(lock)) is not None]
    for lock, one in running:
        name = lock.name.removeprefix(".").removesuffix(".lock")
        print(f"ending the stack {name} (process {one.pid}) …", flush=True)
        if not claims.end(one, seconds=END_SECONDS):
            raise StackError(f"process {one.pid} has not ended after {END_SECONDS:.0f} s")
    if running:
        print(f"ended; {locks[0].parent} keeps the logs")
    elif not elsewhere:
        print("no stack runs" if folder is None else f"no stack runs in {folder}")
    named = folder is not None and not running
    for other in claims.running_folders() if named else elsewhere:
        end = claims.command_to_end(other)
        print(f"the stack in {other} runs{' on' if running else ''}: `{end}` ends it")
    return 1 if elsewhere and not running else 0
