"""Lists the files of a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import PurePath

from trainwarden_exporter.frameworks.path_resolution import resolve
from trainwarden_exporter.logs.file_access import COMPRESSED_SUFFIXES
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.runtime.account_access import reading_for

log = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two listings."""

OutputFiles = Callable[[str], Iterable[str]]
"""Returns the files into which a worker, given by its name, writes its output."""

OUTPUT = "output"
"""Stands for a template in the location of such a file."""

FileLocation = tuple[str, str]
"""A path, and the template that matched it."""


def _no_output_files(worker: str) -> tuple[str, ...]:  # noqa: ARG001 - as `OutputFiles`
    return ()


def find_log_files(
    spec: LogSpec, output_files: OutputFiles = _no_output_files
) -> tuple[FileLocation, ...]:
    """Returns the files of `spec`; for each template, the last written first.

    Without any, returns the output files of the workers that write the log: a log may have any
    name. Raises OSError.
    """
    templates = tuple(dict.fromkeys((*spec.files, *spec.instance_templates)))
    with reading_for(spec.account):
        instance = resolve(spec.path, templates, dict(spec.variables))
    found = tuple(
        (str(path), template)
        for template in spec.files
        for path in instance.files(template)
        if path.suffix not in COMPRESSED_SUFFIXES
    )
    return found or tuple(
        (path, OUTPUT)
        for writer in spec.writers
        for path in output_files(writer)
        if PurePath(path).suffix not in COMPRESSED_SUFFIXES
    )


class LogFileListing:
    """Periodic listing; keeps the previous result after a failure."""

    def __init__(
        self, spec: LogSpec, listed: float, output_files: OutputFiles = _no_output_files
    ) -> None:
        """`listed` is the time of the last listing (Unix seconds; 0 for never)."""
        self.locations: tuple[FileLocation, ...] = ()
        self.listed = listed
        self._spec = spec
        self.output_files = output_files
        self._due = float("-inf")
        self._failure: str | None = None

    def refresh(self, now: float, clock: float) -> None:
        """Lists again when it is due."""
        if clock < self._due:
            return
        failure = None
        try:
            found = find_log_files(self._spec, self.output_files)
            was_output = any(template == OUTPUT for _, template in self.locations)
            if found or not was_output:  # the output of a worker that has ended is kept
                self.locations = found
        except OSError as error:
            failure = str(error)
        else:
            self.listed = now
        self._log_change(failure)
        self._due = clock + INTERVAL

    def _log_change(self, failure: str | None) -> None:
        if failure == self._failure:
            return
        self._failure = failure
        fields = {"run": self._spec.run, "log": self._spec.name}
        if failure is None:
            log.info("folders of a log read again", extra=fields)
        else:
            log.warning("folders of a log not read", extra={**fields, "error": failure})
