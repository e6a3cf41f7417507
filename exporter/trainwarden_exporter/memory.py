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

_M_ARENA_MAX = -8  # of malloc.h, see mallopt(3)
_CA_FILE = "SSL_CERT_FILE"  # of OpenSSL, see SSL_CTX_set_default_verify_paths(3)


def settle() -> None:
    """Do all of it; to be called once all is imported, and before the first thread starts."""
    _share_one_heap()
    linecache.clearcache()  # 0.5: our sources, kept since pydantic looked up what fields are for
    gc.freeze()  # code and classes stay for good: no collection need look at them again


def _share_one_heap() -> None:
    """Let all threads allocate from one heap (1.0); of a libc without mallopt, nothing.

    glibc gives threads heaps of their own, so that they do not wait for each other: up to eight for
    each core, and what one has once needed stays with it. Ours take turns anyway, in the
    interpreter, and would rather use what another has given back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


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


mimetypes.knownfiles.clear()  # 0.3: the endings of a thousand kinds of file, and no file is served
_import_aiohttp()
