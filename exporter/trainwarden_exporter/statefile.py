"""A small file in which the exporter keeps what must outlive it."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile(Generic[T]):
    """A value of one type, kept as JSON; only in memory where `path` is None.

    A file that cannot be read is as good as none, and one that cannot be written is no reason to
    stop watching: both are said in the log, once for each change of state.
    """

    def __init__(self, path: Path | None, kind: type[T], *, empty: T) -> None:
        self._path = path
        self._adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type] # it is hashable
        self._writable = True
        self._saved = self._read(empty)

    @property
    def value(self) -> T:
        """What was saved last."""
        return self._saved

    def save(self, value: T) -> None:
        """Keep `value`. The file is replaced as a whole, and only if the value is another one."""
        if value == self._saved and self._writable:
            return
        self._saved = value
        if self._path is None:
            return
        try:
            _replace(self._path, self._adapter.dump_json(value))
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
            return self._adapter.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return empty
        except (OSError, ValidationError) as error:
            log.warning("state not read", extra={"path": self._path, "error": str(error)})
            return empty


@lru_cache(maxsize=32)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # what checks a value costs much to be built, and each reload opens every file anew
    return TypeAdapter(kind)


def _replace(path: Path, content: bytes) -> None:
    """Write so that a reader, or a machine that loses power, has the old file or the new one."""
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
