"""Reads the exporter's file again when it has changed, without a reload of the remediator."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from trainwarden_exporter.config import announcements_folder
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.announcement_files import announcement_files
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_remediator.config.restart_methods.run import has_ended
from trainwarden_remediator.config.schema import Setup, load_exporter_file
from trainwarden_remediator.config.targets import AnnouncedTarget

_Version = tuple[int, int, int, int] | None
_Runs = frozenset[tuple[Path, _Version]]
_Wrappers = frozenset[Identity]


class ExporterFile:
    """The exporter's file beside remediator.yml at `path`.

    An operator who narrows a `match` and reloads the exporter must not have to remember that the
    remediator reads the same file (harm 29).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[Path, _Version, _Runs, _Wrappers] | None = None
        self.problem = ""
        """Why the file as it is now cannot be used, or ""."""

    def read_if_changed(self, setup: Setup) -> Setup:
        """Returns `setup` with the present content of the file; `setup` itself if it is the same.

        Also `setup` itself while the file has a `problem`. Blocks.
        """
        file = setup.config.exporter.config
        folder = announcements_folder(setup.exporter_config)
        announced = frozenset() if folder is None else _announced(folder)
        version = file, _version_of(file), announced, _ended_wrappers(setup)
        if version == self._version:
            return setup
        try:
            found = load_exporter_file(self._path, setup.config)
        except ConfigError as error:
            # Read again: the cause may pass without a change of the file.
            self._version, self.problem = None, str(error).partition("\n")[0]
            return setup
        self._version, self.problem = version, ""
        return setup if found == setup else found


def _announced(folder: Path) -> _Runs:
    """Returns what changes when a run is announced, starts again or ends."""
    try:
        files, _ = bounded_call(folder, partial(announcement_files, folder))
    except OSError:
        return frozenset()
    return frozenset((path, _version(path)) for path in files)


def _ended_wrappers(setup: Setup) -> _Wrappers:
    """Returns what changes when a `trainwarden run` ends, which it does after its announcement."""
    targets = (one for one in setup.config.targets if isinstance(one, AnnouncedTarget))
    wrappers = (one.announced.wrapper for one in targets)
    return frozenset(one for one in wrappers if one is not None and has_ended(one))


def _version_of(file: Path) -> _Version:
    try:
        return bounded_call(file, partial(_version, file))
    except OSError:
        return None


def _version(file: Path) -> _Version:
    """Returns what changes when the file is written or replaced; None if it cannot be read."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
