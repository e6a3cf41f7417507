"""The programs that are measured beside ours: from PATH, or fetched into a folder of our own.

It installs no package. Fetched programs are kept below `.stack/peers` and used again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.append(str(PROJECT / "deploy"))

import suites  # noqa: E402 - its folder comes first

PEERS = PROJECT / ".stack" / "peers"
NEWEST = "sid"
"""The suite of the distribution that has the newest."""


class PeerMissing(SystemExit):
    """A program cannot be had; one line that says why. It ends a bench that is nothing without."""


def peer(package: str, suite: str | None = None) -> tuple[Path, str]:
    """A program of the distribution, which is called as its package, and its version.

    Of `suite`, whatever is on PATH, if one is named. Raises PeerMissing where it cannot be had.
    """
    found = shutil.which(package) if suite is None else None
    home = PEERS / (package if suite is None else f"{package}-{suite}")
    path = Path(found) if found else home / "usr/bin" / package
    if not path.exists():
        _kept(home, lambda folder: _unpack(package, suite, folder))
    output = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return path, _version(output.stdout + output.stderr)


def _version(output: str) -> str:
    """`0.7.10` of `process-exporter, version 0.7.10+ds (branch: …`.

    Of a build that was given none, the revision that its distribution wrote there instead.
    """
    after = output.partition("version ")[2].strip()
    if after.startswith("("):
        after = after.partition("revision: ")[2]
    words = after.replace(")", " ").split()
    return words[0].strip(",") if words else "?"


def _unpack(package: str, suite: str | None, folder: Path) -> None:
    get = ["apt-get", "-qq"]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        try:
            if suite is not None:
                get += suites.write(suite, suites.read_archive(), scratch)
                _run([*get, "-o", "APT::Update::Error-Mode=any", "update"], scratch)
            _run([*get, "download", package], scratch)
            (archive,) = scratch.glob("*.deb")
            _run(["dpkg-deb", "-x", archive, folder], scratch)
        except (OSError, subprocess.SubprocessError, suites.SuiteError, ValueError) as error:
            output = (getattr(error, "stderr", "") or str(error)).strip()
            of = "" if suite is None else f" of {suite}"
            raise PeerMissing(f"{package}{of} cannot be fetched: {output}") from error


def python_peer(package: str) -> tuple[list[str | Path], str]:
    """The command of a program of the package index, and its version.

    It gets a virtual environment of its own: what it needs is not what this project needs. Raises
    PeerMissing where it cannot be had.
    """
    home = PEERS / package
    if not (home / "bin" / package).exists():
        _kept(home, lambda folder: _install(package, folder))
    # by the interpreter: the first line of the script names the folder that it was made in
    command: list[str | Path] = [home / "bin/python", home / "bin" / package]
    (found,) = home.glob(f"lib/python*/site-packages/{package.replace('-', '_')}-*.dist-info")
    return command, found.name.removesuffix(".dist-info").rpartition("-")[2]


def _install(package: str, folder: Path) -> None:
    pip: list[str | Path] = [
        folder / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    try:
        _run([sys.executable, "-m", "venv", folder], folder.parent)
        _run([*pip, package], folder.parent)
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", "") or str(error)).strip()
        raise PeerMissing(f"{package} cannot be fetched: {output}") from error


def _kept(home: Path, fill: Callable[[Path], None]) -> None:
    """Fill `home`, which is there only when that went well."""
    PEERS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=PEERS, prefix=".") as name:
        folder = Path(name) / "filled"
        fill(folder)
        folder.rename(home)


def _run(command: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
