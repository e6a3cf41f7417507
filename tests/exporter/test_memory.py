"""What the exporter keeps in memory while it runs."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

UNNEEDED = (
    "cryptography",
    "matplotlib",
    "multiprocessing",
    "sqlite3",
    "structlog",
    "trainwarden_exporter.discovery",
    "trainwarden_remediator",
    "unittest",
)
"""What would cost memory for months, and what the running exporter has no use for."""

START = """
import json, linecache, sys
from trainwarden_exporter import __main__, memory

memory.settle()
print(json.dumps([sorted(sys.modules), len(linecache.cache)]))
"""

HEAPS = """
import ctypes, sys, threading
from trainwarden_exporter import memory

if "settled" in sys.argv:
    memory.settle()
allocate = ctypes.CDLL(None).malloc
allocate.restype = ctypes.c_void_p
places = [allocate(100)]
gate = threading.Barrier(5)

def work():
    gate.wait()
    places.append(allocate(100))
    gate.wait()

threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads:
    one.start()
gate.wait()
gate.wait()
for one in threads:
    one.join()
with open("/proc/self/maps") as maps:
    start, end = next(line.split()[0].split("-") for line in maps if "[heap]" in line)
print(sum(int(start, 16) <= place < int(end, 16) for place in places))
"""


def said(program: str, *arguments: str) -> str:
    """What a Python program prints."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_the_running_exporter_imports_nothing_that_it_has_no_use_for() -> None:
    modules, _ = json.loads(said(START))

    assert "trainwarden_exporter.core" in modules
    assert [one for one in modules if one.startswith(tuple(f"{two}." for two in UNNEEDED))] == []
    assert sorted(set(modules) & set(UNNEEDED)) == []


def test_the_sources_that_only_the_start_has_read_are_given_back() -> None:
    _, sources = json.loads(said(START))
    assert sources == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc has other heaps")
def test_all_threads_allocate_from_one_heap() -> None:
    assert int(said(HEAPS)) < 5  # so that the test can tell
    assert int(said(HEAPS, "settled")) == 5
