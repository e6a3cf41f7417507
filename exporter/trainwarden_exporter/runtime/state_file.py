"""State file that survives restarts of the exporter."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainwarden_exporter.runtime.bounded_calls import bounded_call

log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile(Generic[T]):
    """A value of one type, stored as JSON; only in memory if `path` is None.

    An unreadable file counts as missing, and an unwritable one does not stop the exporter: both are
    logged, once per change of state. So is a disk that does not answer.
    """

    def __init__(self, path: Path | None, kind: type[T], *, empty: T) -> None:
        self._path = path
        self._adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type] # it is hashable
        self._writable = True
        self.value = self._read(empty)
        """The last saved value."""

    def save(self, value: T, *, seconds: float | None = None) -> None:
        """Saves `value`. Replaces the file atomically, and only if the value has changed.

        Waits for the disk as `bounded_call` does; a write that ends later counts as none.
        """
        if value == self.value and self._writable:
            return
        self.value = value
        if self._path is None:
            return
        try:
            content = self._adapter.dump_json(value)
            bounded_call(self._path, partial(_replace, self._path, content), seconds=seconds)
        except OSError as error:
            if self._writable:
                log.warning("state not saved", extra={"path": self._path, "error": str(error)})
            self._writable = False
            return
        self._writable = True

    def _read(self, empty: T) -> T:
        if self._path is None:
            return empty
        try:
            return self._adapter.validate_json(bounded_call(self._path, self._path.read_bytes))
        except FileNotFoundError:
            return empty
        except (OSError, ValidationError) as error:
            log.warning("state not read", extra={"path": self._path, "error": str(error)})
            return empty


@lru_cache(maxsize=32)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # cached, because validators are expensive to build and each reload opens every file again
    return TypeAdapter(kind)


def _replace(path: Path, content: bytes) -> None:
    """Writes atomically: a reader, or a machine after power loss, has the old or the new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
