"""Keeps out of memory what no scrape needs, gives back what only the start of the program needed.

To be imported before anything that imports aiohttp, and only by the exporter's own program. What
each is worth is told in MiB of resident memory, after 100 scrapes with everything switched on
(bench/everything.py), on CPython 3.11 with glibc.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import linecache
import mimetypes
import os
import sys
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any

_HEAP = {
    "M_ARENA_MAX": (-8, 1),
    "M_MMAP_THRESHOLD": (-3, 64 * 1024),
    "M_TRIM_THRESHOLD": (-1, 64 * 1024),
}
"""Parameters of malloc.h by name: their numbers, and what they are set to; see mallopt(3)."""
_CA_FILE = "SSL_CERT_FILE"  # of OpenSSL, see SSL_CTX_set_default_verify_paths(3)
_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"  # of pydantic, see its page on plugins
_MIDWAY = ("concurrent.futures.thread", "encodings.ascii", "encodings.idna", "encodings.utf_8_sig")
"""What each run imports only in its course. Here it comes with all else: who compiles the program
by asking for its version (Dockerfile, deploy/systemd/install.py) has compiled these as well."""
_LATE = ("bz2", "csv", "lzma", "zipfile")
"""What others import on the chance of it being asked for, which here it is not."""


def settle() -> None:
    """Do all of it; to be called once all is imported, and before the first thread starts."""
    _set_up_heap()
    linecache.clearcache()  # 0.5: our sources, kept since pydantic looked up what fields are for
    sys.path_importer_cache.clear()  # 0.2: what lies in the folders from which all was imported
    gc.collect()
    gc.freeze()  # code and classes stay for good: no collection need look at them again


def _set_up_heap() -> None:
    """Let all threads allocate from one heap (1.0), without holes (0.5); needs glibc's mallopt.

    glibc gives threads heaps of their own, so that they do not wait for each other: up to eight for
    each core, and what one has once needed stays with it. Ours take turns anyway, in the
    interpreter, and would rather use what another has given back. A large block, such as a page, is
    no part of the heap and so is given back to the system; but once it has seen some of them come
    and go, glibc puts them into the heap too, where they leave holes. It does not where it is told
    what counts as large.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for number, value in _HEAP.values():
            mallopt(number, value)


_LOADING = RLock()  # one of these may load another


class _Late(ModuleType):
    """Stands for a module that is loaded once something of it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = find_spec(name)

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__warningregistry__"):
            raise AttributeError(name)  # who goes through all modules wants nothing of this one
        with _LOADING:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            module = importlib.import_module(self.__name__)
            vars(self).update(vars(module))
        return getattr(module, name)


def _import_aiohttp() -> None:
    """Import aiohttp without the authorities that it reads for whoever does not name any (1.8).

    It does so as it is imported, twice, and has no switch for it; 0.02 s of the start as well. Who
    asks over TLS here names them (authorities.py), and reads them when the variable is back. Where
    somebody forgot to, no server would be trusted that should not be.
    """
    own = os.environ.get(_CA_FILE)
    os.environ[_CA_FILE] = os.devnull
    try:
        importlib.import_module("aiohttp")
    finally:
        if own is None:
            del os.environ[_CA_FILE]
        else:
            os.environ[_CA_FILE] = own


for _name in _MIDWAY:
    importlib.import_module(_name)
for _name in _LATE:  # 0.7
    sys.modules.setdefault(_name, _Late(_name))
os.environ.setdefault(_PLUGINS, "__all__")  # 0.4: looked for by way of two of these
mimetypes.knownfiles.clear()  # 0.3: the endings of a thousand kinds of file, and no file is served
_import_aiohttp()
