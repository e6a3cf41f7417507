"""The folders and files of announced runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

FOLDER_VARIABLE = "TRAINWARDEN_FOLDER"
MAX_NAME = 100
NAME_RULE = "a name has at most 100 letters, digits and _ . : -; it begins with a letter or digit"


class NoHomeError(ValueError):
    """The account has no home, so it has no runs."""


class RunFiles(NamedTuple):
    """The files of one worker of a run."""

    announcement: Path
    pid_file: Path
    socket: Path
    log: Path


def state_folder() -> Path:
    """Returns the folder of the account's state, which may not exist yet.

    Raises NoHomeError if the account has no home.
    """
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder).absolute()
    # the base directory specification ignores a relative path
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise NoHomeError(f"this account has no home: set HOME or {FOLDER_VARIABLE}") from error
    return base / "trainwarden"


def run_files(folder: Path, run: str, worker: str) -> RunFiles:
    """Returns the files below `folder`; names contain no `@`, so no two workers share a file."""
    stem = f"{run}@{worker}"
    runs = folder / "runs.d"
    return RunFiles(
        runs / f"{stem}.json",
        runs / f"{stem}.pid",
        runs / f"{stem}.sock",
        folder / "logs" / f"{stem}.log",
    )


def find_announcements(run: str, worker: str | None = None) -> list[Path]:
    """Returns the announcements of the workers of a run, or of one of them.

    Raises ValueError for an impossible name, NoHomeError if the account has no home.
    """
    for name in (run, worker):
        check_name(name)
    return sorted((state_folder() / "runs.d").glob(f"{run}@{worker or '*'}.json"))


def find_all_announcements() -> dict[str, list[Path]]:
    """Returns the announcements of all workers, by run; empty if the account has no home."""
    try:
        announced = sorted((state_folder() / "runs.d").glob("*@*.json"))
    except NoHomeError:
        return {}
    found: dict[str, list[Path]] = {}
    for path in announced:
        found.setdefault(path.stem.partition("@")[0], []).append(path)
    return found


def log_of(announcement: Path) -> Path:
    """Returns the log of an announced worker."""
    return run_files(announcement.parent.parent, *announcement.stem.split("@")).log


def check_name(name: str | None) -> None:
    """Raises ValueError if `name` cannot be a label of the metrics."""
    if name is not None and not (
        len(name) <= MAX_NAME
        and name[:1].isalnum()
        and name.isascii()
        and all(one.isalnum() or one in "_.:-" for one in name)
    ):
        raise ValueError(f"{name!r}: {NAME_RULE}")


def make_folders(folder: Path) -> None:
    """Creates the folders for this account only. Raises OSError if another account owns one."""
    for one in (folder, folder / "runs.d", folder / "logs"):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = one.stat()
        if status.st_uid != os.geteuid():
            raise PermissionError(f"{one}: belongs to another account")
        if status.st_mode & 0o022:
            one.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Writes a file of mode 0600 so that a reader never sees half of it. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)
