"""The subcommands that one of the two programs has: they are passed on as they are given."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FORWARDED = {
    "discover": ("trainwarden_exporter", "propose a configuration that fits this host"),
    "checkpoints": ("trainwarden_exporter", "list the checkpoints of a run, each read and proved"),
    "preflight": ("trainwarden_exporter", "check whether a run can start on this host"),
    "stacks": ("trainwarden_exporter", "show what the processes of a run do, by their stacks"),
    "journal": ("trainwarden_remediator", "show alerts, decisions, actions and their outcomes"),
    "report": ("trainwarden_remediator", "report one incident, or the last 24 hours, as Markdown"),
    "hold": ("trainwarden_remediator", "stop all actions until `resume`"),
    "resume": ("trainwarden_remediator", "allow actions again"),
    "clean-gpu": (
        "trainwarden_remediator",
        "list the processes that hold a GPU, and end leftovers with --end",
    ),
    "approve": (
        "trainwarden_remediator",
        "let a remediator in mode observe take the action that it proposes, once",
    ),
    "notify-test": (
        "trainwarden_remediator",
        "send a test message to each destination of `notify`",
    ),
    "runbook": ("trainwarden_remediator", "print what to do about an alert"),
}
"""Subcommand to its package and its help text."""
OF_RUNS = ("stacks", "checkpoints")
"""Subcommands of the exporter that are about the runs of its file."""
READERS = ("journal", "report")
"""Subcommands that read what a stack has left, also after its end."""
USAGE = 2
"""Exit status of wrong usage."""
NOTHING_RUNS = "Trainwarden does not run here: `trainwarden up` starts it"


def run(arguments: Sequence[str]) -> int:
    """Runs the subcommand `arguments[0]` and returns its exit status."""
    package, _ = FORWARDED[arguments[0]]
    try:
        if package == "trainwarden_remediator" and arguments[0] != "runbook":
            # here: a mistake in them is reported before that nothing runs
            program = import_module(f"{package}.__main__")
            program.build_parser("trainwarden", arguments[:1]).parse_args(arguments)
            arguments = [arguments[0], *_configuration(*arguments), *arguments[1:]]
        elif arguments[0] in OF_RUNS:
            arguments = [arguments[0], *_observed(*arguments), *arguments[1:]]
        status: int = import_module(f"{package}.__main__").main(arguments, program="trainwarden")
    except SystemExit as end:
        if not end.code:  # it has printed its help
            print(f"\n{import_module('trainwarden.commands.forwarded_help').HELP[arguments[0]]}")
        elif end.code == USAGE:
            print(f"`trainwarden {arguments[0]} --help` has its options", file=sys.stderr)
        raise
    return status


def _configuration(command: str, *arguments: str) -> list[str]:
    """Returns the option that names the file of the running stack, unless another one is meant.

    Without a stack, the file in the working folder is used. Raises ValueError if there is neither,
    if several stacks run, or if other accounts can write the file in the working folder.
    """
    # here: `trainwarden run` imports this module, and stays as long as the run does
    from pathlib import Path  # noqa: PLC0415

    from trainwarden.stack import load_script  # noqa: PLC0415

    if _names_a_file(arguments):
        return []
    claims = load_script("claims")
    here = Path("remediator.yml")
    here = here.absolute() if here.exists() else here  # the working folder may be gone
    running = remediator_files(claims.running_folders())
    of_here = [one for one in running if _is_same(here, Path(one))]
    if len(found := of_here or running) == 1:
        if here.exists() and not of_here:
            note = f"uses {found[0]}, of the stack that runs, and not {here}"
            print(f"trainwarden {command}: {note}", file=sys.stderr)
        return [f"--config.file={found[0]}"]
    if not running and here.exists():
        if other := _other_writer(here):
            raise ValueError(
                f"{here} is not used: {other}; name it to use it anyway: --config.file {here.name}"
            )
        print(f"trainwarden {command}: uses {here}", file=sys.stderr)
        return [f"--config.file={here}"]
    left = remediator_files(claims.known_folders())
    shown = "".join(f"\n  --config.file {one}" for one in running or left)
    if running:
        raise ValueError(f"several stacks run; choose one:{shown}")
    hint = f"\nEarlier stacks have left:{shown}" if left and command in READERS else ""
    raise ValueError(f"{NOTHING_RUNS}, or name a file: --config.file FILE{hint}")


def _observed(_command: str, *arguments: str) -> list[str]:
    """Returns the option that names the exporter.yml of the only running stack, if there is one.

    Without it, a subcommand knows the runs of `trainwarden run` alone.
    """
    from pathlib import Path  # noqa: PLC0415 - as above

    from trainwarden.stack import load_script  # noqa: PLC0415 - as above
    from trainwarden_remediator.config.schema import load_setup  # noqa: PLC0415 - as above

    if _names_a_file(arguments):
        return []
    files = remediator_files(load_script("claims").running_folders())
    if len(files) != 1:
        return []
    config = load_setup(Path(files[0])).config
    return [f"--config.file={config.exporter.config}"]


def remediator_files(folders: Iterable[Path]) -> list[str]:
    """Returns the paths of the remediator.yml files of stacks, by the folders of the stacks."""
    from trainwarden.stack import load_script  # noqa: PLC0415 - as above

    links = (folder / load_script("runfolder").REMEDIATOR_LINK for folder in folders)
    return [one.read_text(encoding="utf-8") for one in links if one.exists()]


def _names_a_file(arguments: Sequence[str]) -> bool:
    options = takewhile("--".__ne__, arguments)
    return any(one.startswith("--config.file") or one in ("-h", "--help") for one in options)


def _is_same(file: Path, other: Path) -> bool:
    return file.exists() and other.exists() and file.samefile(other)


def _other_writer(file: Path) -> str:
    """Says which other account can write or replace a file, or has linked it there; "" if none.

    The file names the folders and commands that a subcommand reads, writes or starts.
    """
    folder = file.parent
    for path, status in ((folder, folder.stat()), (file, file.lstat()), (file, file.stat())):
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another account (uid {status.st_uid})"
        others = stat.S_IWOTH if _is_own_group(status.st_gid) else stat.S_IWOTH | stat.S_IWGRP
        is_shared = path == folder and status.st_mode & stat.S_ISVTX  # as /tmp
        is_link = stat.S_ISLNK(status.st_mode)  # nobody can write one
        if status.st_mode & others and not (is_shared or is_link):
            return f"other accounts can write {path} (`chmod go-w` ends that)"
    return ""


def _is_own_group(gid: int) -> bool:
    """Whether a group is that of this account alone, by its name and members."""
    import grp  # noqa: PLC0415 - as above
    import pwd  # noqa: PLC0415

    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and not set(group.gr_mem) - {name}
