"""Run a command, watched and healed.

COMMAND runs as it would without this: same terminal, same output, same exit status. What it prints
is also written to a log; the exporter finds the run and reads its log, and the remediator may
restart it if its mode is `act`. Without COMMAND, all commands of the file trainwarden.yml in this
folder are started.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

EXAMPLES = """\
examples:
  trainwarden run -- python train.py --lr 1e-5
  trainwarden run --name grpo --worker vllm --role inference -- vllm serve Qwen/Qwen3-8B
  trainwarden run --restart on-failure --memory-limit 64GiB -- python train.py
  trainwarden run --wait --detach -- python train.py
  trainwarden run                        the commands of trainwarden.yml

exit status: that of COMMAND, which also passes on a signal; 127 if COMMAND does not exist, 126 if
it cannot be executed; 1 if the run cannot be started, 2 on wrong usage or a mistake in
trainwarden.yml, 130 after Ctrl-C before the start. With --detach 0 once COMMAND is started; of
trainwarden.yml the first that is not 0"""

USAGE = 2
"""Exit status of wrong usage, and of a mistake in trainwarden.yml."""
POLICIES = ("never", "on-failure", "on-request")
INTERRUPTED = 130
"""Exit status of a shell after Ctrl-C."""
GRACE_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name", type=_name, metavar="NAME", help="name of the run (default: of the script)"
    )
    parser.add_argument(
        "--worker",
        type=_name,
        default="trainer",
        metavar="NAME",
        help="name of this command among those of the run (default: %(default)s)",
    )
    parser.add_argument(
        "--role",
        type=_role,
        metavar="ROLE",
        help="purpose of the worker, such as trainer or inference",
    )
    parser.add_argument(
        "--restart",
        choices=POLICIES,
        default="on-request",
        help="who may start COMMAND again: nobody; this program after a failure, and the"
        " remediator after a hang or above a limit; only the remediator (default: %(default)s)",
    )
    parser.add_argument(
        "--memory-limit",
        type=_checked(r"[1-9]\d*(\.\d+)?([KMGT]i?B?|B)", "a size with a unit, such as 64GiB"),
        metavar="SIZE",
        help="memory of COMMAND and its descendants, such as 64GiB, above which it is restarted",
    )
    parser.add_argument(
        "--age-limit",
        type=_checked(r"[1-9]\d*[smhd]", "a number with a unit, such as 12h"),
        metavar="DURATION",
        help="age, such as 12h, from which on COMMAND is restarted if its memory grows",
    )
    parser.add_argument(
        "--checkpoints",
        type=_checked(r"[^{}]+", "a path without braces"),
        metavar="FOLDER",
        help="folder of the checkpoints: files or folders whose name ends with the step, or a file"
        " that each save overwrites, such as ckpt.pt or last.ckpt",
    )
    parser.add_argument(
        "--ready",
        type=_ready_address,
        metavar="ADDRESS",
        help="where on this host an inference server of your own answers with a status of 2xx: the"
        " exporter asks it there (default: where the command line of a known server shows it)",
    )
    parser.add_argument(
        "--finishes",
        action=argparse.BooleanOptionalAction,
        help="whether exit status 0 is the end of the run (default: not of an inference server)",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="start only once GPUs are free and memory and disk suffice, as preflight checks them",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="run in the background, without a terminal; `trainwarden attach` shows the output",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _checked(pattern: str, expected: str) -> Callable[[str], str]:
    """Returns a type of arguments that the exporter accepts; it parses them."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}")
        return text

    return check


def _name(text: str) -> str:
    """Returns a name that can be a label of the metrics."""
    from trainwarden.run.folder import check_name  # noqa: PLC0415

    try:
        check_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _role(text: str) -> str:
    """Returns a role that is no misspelt one."""
    from trainwarden_exporter.processes.roles import check_role  # noqa: PLC0415

    try:
        return check_role(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _ready_address(text: str) -> str:
    """Returns an address at which the exporter can ask a server."""
    from trainwarden_exporter.inference.addresses import check_ready_address  # noqa: PLC0415

    try:
        check_ready_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        return run_file(options)
    # here: `trainwarden run --help` needs none of it
    from trainwarden.run.start import start_run  # noqa: PLC0415

    checkpoints = None if options.checkpoints is None else Path(options.checkpoints).absolute()
    if options.wait and not wait_for_host([Path.cwd(), checkpoints or Path.cwd()]):
        return INTERRUPTED
    if checkpoints is not None and not checkpoints.exists():
        later = "does not exist yet; it is looked at once the run creates it"
        print(f"trainwarden run: {options.checkpoints} {later}", file=sys.stderr)
    typed = options.given[: len(options.given) - len(options.command)]
    role = options.role or ("trainer" if options.worker == "trainer" else "worker")
    return start_run(
        command,
        {
            "run": options.name,
            "named": options.name is not None,
            "options": [one for one in typed if one != "--"],
            "worker": options.worker,
            "role": role,
            "restart": options.restart,
            "memory_limit": options.memory_limit,
            "age_limit": options.age_limit,
            "checkpoints": None if checkpoints is None else str(checkpoints),
            "ready": options.ready,
            "finishes": role != "inference" if options.finishes is None else options.finishes,
        },
        detach=options.detach,
    )


def wait_for_host(folders: Sequence[Path]) -> bool:
    """Waits in a child process, whose libraries would stay in memory with the run.

    Returns False after Ctrl-C. Raises OSError if the host cannot be checked.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            from trainwarden.starting import host_wait  # noqa: PLC0415

            host_wait.wait_for_host(folders)
            status = 0
        except KeyboardInterrupt:
            status = INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the parent only sees the exit status
            print(f"trainwarden run: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(status)
    try:
        _, status = os.waitpid(child, 0)
    except KeyboardInterrupt:
        return False
    if os.waitstatus_to_exitcode(status) == 1:
        raise OSError("the host cannot be checked")
    return status == 0


def run_file(options: argparse.Namespace) -> int:
    """Runs the commands of trainwarden.yml; returns the exit status."""
    from trainwarden.commands.attach import exit_status, show  # noqa: PLC0415
    from trainwarden.run.claim import next_name  # noqa: PLC0415
    from trainwarden.run.folder import run_files, state_folder  # noqa: PLC0415
    from trainwarden.starting import group  # noqa: PLC0415
    from trainwarden.starting.run_file import RUN_FILE, finishing, load_run_file  # noqa: PLC0415
    from trainwarden_exporter.exceptions import ConfigError  # noqa: PLC0415

    folder = Path.cwd()
    if not (folder / RUN_FILE).exists():
        missing = f"no COMMAND given, and {folder} has no {RUN_FILE}; see its --help"
        print(f"trainwarden run: {missing}", file=sys.stderr)
        return USAGE
    try:
        name, commands = load_run_file(folder / RUN_FILE)
    except ConfigError as error:
        for problem in error.problems:
            print(f"trainwarden run: {problem}", file=sys.stderr)
        return USAGE
    if options.wait and not wait_for_host([folder]):
        return INTERRUPTED
    name = next_name(state_folder() / "runs.d", name)
    stop_request, started = group.StopRequest(), list[Path]()
    files = (run_files(state_folder(), name, one) for one in finishing(commands))
    waited = [one.announcement for one in files]
    notices = group.EndNotices(waited)

    def is_over() -> bool:
        stop_request.check()
        return notices.wait()

    print(group.describe_end(name, commands, detach=options.detach), flush=True)
    try:
        group.start_all(name, commands, folder, started=started, stop=stop_request)
        if options.detach:
            return 0
        show(started, is_over)
        status = exit_status(waited)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except group.StartError as error:
        print(f"trainwarden run: {error}", file=sys.stderr)
        status = 1
    _stop(started, with_run=status != INTERRUPTED)
    return status


def _stop(started: Sequence[Path], *, with_run: bool) -> None:
    """Stops what still runs, the last first: a trainer before the server that it uses.

    `with_run`: the run has ended, and no user has ended it.
    """
    from trainwarden.commands.stop import stop  # noqa: PLC0415
    from trainwarden.run.announcement import running_pid  # noqa: PLC0415

    for path in reversed(started):
        if running_pid(path):
            problem = stop(path, GRACE_SECONDS, with_run=with_run)
            print(f"{path.stem.partition('@')[2]}: {problem or 'stopped'}", flush=True)
