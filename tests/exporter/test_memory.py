"""What the exporter keeps in memory while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority

UNNEEDED = (
    "bcrypt",
    "cryptography",
    "matplotlib",
    "multiprocessing",
    "sqlite3",
    "structlog",
    "trainwarden_exporter.discovery",
    "trainwarden_exporter.preflight",
    "trainwarden_remediator",
    "unittest",
)
"""What would cost memory for months, and what the running exporter has no use for."""

START = """
import json, linecache, sys
from trainwarden_exporter import __main__, memory

memory.settle()
print(json.dumps([sorted(sys.modules), len(linecache.cache) + len(sys.path_importer_cache)]))
"""

LATE = """
import io, json, sys
from trainwarden_exporter import __main__

[hasattr(module, "__file__") for module in list(sys.modules.values())]
before = sorted({"_bz2", "_csv", "_lzma", "zipfile._path"} & set(sys.modules))
import bz2, csv, lzma, shutil, zipfile
shutil.make_archive(sys.argv[1], "zip", sys.argv[2])
print(json.dumps([
    before,
    [one.decompress(one.compress(b"text")).decode() for one in (bz2, lzma)],
    next(csv.reader(io.StringIO("a,b"))),
    zipfile.is_zipfile(sys.argv[1] + ".zip"),
]))
"""

PLUGINS = """
import os, sys

sys.path.insert(0, sys.argv[1])
if "exporter" in sys.argv:
    from trainwarden_exporter import __main__
import pydantic

pydantic.TypeAdapter(int)
print("strange_plugin" in sys.modules, os.environ.get("PYDANTIC_DISABLE_PLUGINS"))
"""

BLOCKS = """
import ctypes, sys
from trainwarden_exporter import memory

if "settled" in sys.argv:
    memory.settle()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(1_000_000))
place = libc.malloc(300_000)
with open("/proc/self/maps") as maps:
    start, end = next(line.split()[0].split("-") for line in maps if "[heap]" in line)
print(int(start, 16) <= place < int(end, 16))
"""

AUTHORITIES = """
import gc, json, os, ssl, sys

if "exporter" in sys.argv:
    from trainwarden_exporter import __main__
else:
    import aiohttp
def authorities(context):
    return context.cert_store_stats()["x509_ca"]

held = [authorities(one) for one in gc.get_objects() if isinstance(one, ssl.SSLContext)]
fresh = authorities(ssl.create_default_context())
print(json.dumps([[held, fresh], os.environ.get("SSL_CERT_FILE")]))
"""

ENDINGS = """
import mimetypes, sys

mimetypes.knownfiles.append(sys.argv[1])
from trainwarden_exporter import __main__

print(mimetypes.guess_type("a.saved")[0], mimetypes.guess_type("a.html")[0])
"""

ASK = """
import asyncio, sys
from trainwarden_exporter import __main__
from trainwarden_exporter.inference.asking import HttpAsker
from trainwarden_exporter.inference.questions import Question

async def ask():
    async with HttpAsker(5.0).visit() as ask:
        return await ask(sys.argv[1], Question("life", "/"))

print(asyncio.run(ask()).contact.name)
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


def said(program: str, *arguments: str | Path, authorities: Path | None = None) -> str:
    """What a Python program prints, to which that file is the authorities of the system."""
    set_here = ("SSL_CERT_FILE", "PYDANTIC_DISABLE_PLUGINS")  # the latter by the exporter itself
    environment = {name: text for name, text in os.environ.items() if name not in set_here}
    if authorities is not None:
        environment["SSL_CERT_FILE"] = str(authorities)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
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


def test_what_only_the_start_has_read_is_given_back() -> None:
    _, kept = json.loads(said(START))
    assert kept == 0


def test_what_others_import_on_the_chance_is_loaded_once_it_is_asked_for(tmp_path: Path) -> None:
    before, texts, row, packed = json.loads(said(LATE, tmp_path / "archive", Path(__file__).parent))
    assert before == []
    assert (texts, row, packed) == (["text", "text"], ["a", "b"], True)


def test_no_plugin_of_others_for_pydantic_is_taken_along(tmp_path: Path) -> None:
    (tmp_path / "strange_plugin.py").write_text("plugin = None\n")
    described = tmp_path / "strange-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Name: strange\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[pydantic]\nstrange = strange_plugin:other\n")
    assert said(PLUGINS, tmp_path).split()[0] == "True"  # so that the test can tell

    assert said(PLUGINS, tmp_path, "exporter").split() == ["False", "__all__"]


def test_aiohttp_holds_no_authorities_and_whoever_names_them_has_them(authority: Authority) -> None:
    (held, fresh), _ = json.loads(said(AUTHORITIES, authorities=authority.cert_file))
    assert (max(held), fresh) == (1, 1)  # so that the test can tell

    (held, fresh), variable = json.loads(
        said(AUTHORITIES, "exporter", authorities=authority.cert_file)
    )
    assert (max(held), fresh) == (0, 1)
    assert variable == str(authority.cert_file)


def test_a_variable_that_was_not_there_is_not_there_afterwards() -> None:
    _, variable = json.loads(said(AUTHORITIES, "exporter"))
    assert variable is None


def test_files_that_name_endings_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "mime.types"
    file.write_text("x-test/saved saved\n")
    assert said(ENDINGS, file).split() == ["None", "text/html"]


async def test_the_running_exporter_trusts_the_authorities_of_the_system_and_no_other(
    secured: str, authority: Authority
) -> None:
    signed = await asyncio.to_thread(said, ASK, secured, authorities=authority.cert_file)
    unsigned = await asyncio.to_thread(said, ASK, secured)
    assert signed.split() == ["ANSWERED"]
    assert unsigned.split() == ["UNREACHABLE"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc has other heaps")
def test_all_threads_allocate_from_one_heap() -> None:
    assert int(said(HEAPS)) < 5  # so that the test can tell
    assert int(said(HEAPS, "settled")) == 5


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc has other heaps")
def test_what_is_large_lies_outside_the_heap_and_so_leaves_no_hole_in_it() -> None:
    assert said(BLOCKS).strip() == "True"  # so that the test can tell
    assert said(BLOCKS, "settled").strip() == "False"
