"""Run a command, watched and healed.

COMMAND runs as it would without this: same terminal, same output, same exit status. What it prints
is also written to a log; the exporter finds the run and reads its log, and the remediator may
restart it if its mode is `act`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

EXAMPLES = """\
examples:
  trainwarden run -- python train.py --lr 1e-5
  trainwarden run --name grpo --worker vllm --role inference -- vllm serve Qwen/Qwen3-8B
  trainwarden run --restart on-failure --memory-limit 64GiB -- python train.py

exit status: that of COMMAND, which also passes on a signal; 127 if COMMAND does not exist, 126 if
it cannot be executed; 1 if the run cannot be started, 2 on wrong usage"""

POLICIES = ("never", "on-failure", "on-request")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: of the script)")
    parser.add_argument(
        "--worker",
        default="trainer",
        metavar="NAME",
        help="name of this command among those of the run (default: %(default)s)",
    )
    parser.add_argument(
        "--role", metavar="ROLE", help="purpose of the worker, such as trainer or inference"
    )
    parser.add_argument(
        "--restart",
        choices=POLICIES,
        default="on-request",
        help="who may start COMMAND again: nobody; this program after a failure, and the"
        " remediator; only the remediator (default: %(default)s)",
    )
    parser.add_argument(
        "--memory-limit",
        type=_checked(r"[1-9]\d*(\.\d+)?[KMGT]i?B?"),
        metavar="SIZE",
        help="memory of COMMAND and its descendants, such as 64GiB, above which it is restarted",
    )
    parser.add_argument(
        "--age-limit",
        type=_checked(r"[1-9]\d*[smhd]"),
        metavar="DURATION",
        help="age, such as 12h, from which on COMMAND is restarted if its memory grows",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _checked(pattern: str) -> Callable[[str], str]:
    """Returns a type of arguments that the exporter accepts; it parses them."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number with a unit")
        return text

    return check


def run(options: argparse.Namespace) -> int:
    # here: `trainwarden run --help` needs none of it
    from trainwarden.run.start import check_name, start_run  # noqa: PLC0415

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise ValueError("no COMMAND given; see trainwarden run --help")
    for name in (options.name, options.worker):
        check_name(name)
    return start_run(
        command,
        {
            "run": options.name,
            "named": options.name is not None,
            "worker": options.worker,
            "role": options.role or ("trainer" if options.worker == "trainer" else "worker"),
            "restart": options.restart,
            "memory_limit": options.memory_limit,
            "age_limit": options.age_limit,
        },
    )
