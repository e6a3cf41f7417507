"""Where the files of a log lie now."""

from __future__ import annotations

import logging

from trainwarden_exporter.layouts.places import resolve
from trainwarden_exporter.logs.files import COMPRESSED
from trainwarden_exporter.logs.specs import LogSpec

log = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two looks into the folders."""

Place = tuple[str, str]
"""A path, and the template by which it was found."""


def read_places(spec: LogSpec) -> tuple[Place, ...]:
    """Where the files of `spec` lie, those of each template written to last first.

    Raises OSError.
    """
    templates = tuple(dict.fromkeys((*spec.files, *spec.beside)))
    instance = resolve(spec.path, templates, dict(spec.variables))
    return tuple(
        (str(path), template)
        for template in spec.files
        for path in instance.files(template)
        if path.suffix not in COMPRESSED
    )


class Listing:
    """The places, looked for every few seconds; those of the last time where that fails."""

    def __init__(self, spec: LogSpec, listed: float) -> None:
        """Its places were looked for last at `listed` (unix seconds; 0 for never)."""
        self.places: tuple[Place, ...] = ()
        self.listed = listed
        self._spec = spec
        self._due = float("-inf")
        self._failure: str | None = None

    def refresh(self, now: float, clock: float) -> None:
        """Look again where it is time to."""
        if clock < self._due:
            return
        failure = None
        try:
            self.places = read_places(self._spec)
        except OSError as error:
            failure = str(error)
        else:
            self.listed = now
        self._tell(failure)
        self._due = clock + INTERVAL

    def _tell(self, failure: str | None) -> None:
        if failure == self._failure:
            return
        self._failure = failure
        facts = {"run": self._spec.run, "log": self._spec.name}
        if failure is None:
            log.info("folders of a log read again", extra=facts)
        else:
            log.warning("folders of a log not read", extra={**facts, "error": failure})
