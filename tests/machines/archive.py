"""Fetches packages of the distribution and unpacks them in a folder, without installing them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from stack import DOWNLOAD_SECONDS, StackError, locked, to_stderr

NEWEST = {"debian": "sid", "ubuntu": "devel"}
"""The suite of each distribution that the newest packages come to first."""

MERGED = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into /usr on every installed system since Debian 12."""

Say = Callable[[str], None]
Get = list[str | Path]


def fetch_root(home: Path, packages: Sequence[str], say: Say = to_stderr) -> Path:
    """A whole root at `home`: `packages` and all that these need, of this system's own release.

    No script of a package is run. What is there already is used again. Raises StackError.
    """

    def fill(scratch: Path, get: Get) -> None:
        (scratch / "status").touch()
        no_packages_installed = [*get, "-o", f"Dir::State::status={scratch}/status"]
        _download(no_packages_installed, packages, scratch)
        _unpack(scratch)
        _settle(scratch / "root")

    return _once(home, fill, "a small root", say)


def fetch_missing(home: Path, packages: Sequence[str], say: Say = to_stderr) -> Path:
    """`packages` and all they need that this system lacks, of its own release, below `home`.

    What is there already is used again. Raises StackError when they cannot be had.
    """

    def fill(scratch: Path, get: Get) -> None:
        _download(get, packages, scratch)
        _unpack(scratch)

    return _once(home, fill, ", ".join(packages), say)


def fetch_newest(home: Path, packages: Sequence[str], say: Say = to_stderr) -> Path:
    """`packages` alone, unpacked at `home`, as the distribution's newest suite carries them.

    What is there already is used again. Raises StackError when they cannot be had.
    """

    def fill(scratch: Path, get: Get) -> None:
        file = scratch / "newest.list"
        file.write_text(newest_sources(_own_sources(scratch)), encoding="utf-8")
        own: Get = [*get, *_own_lists(scratch), "-o", "Dir::Etc::sourceparts=-"]
        own += ["-o", f"Dir::Etc::sourcelist={file}"]
        _run([*own, "update"], scratch)
        _run([*own, "download", *packages], scratch / "archives")
        _unpack(scratch)

    return _once(home, fill, f"the newest {', '.join(packages)}", say)


def newest_sources(own: str) -> str:
    """Where the newest suite is (sources.list(5)), by where `own` has this system's.

    `own` holds an address and what it is signed by in each line. Raises StackError for a
    distribution that is not known.
    """
    for line in own.splitlines():
        uri, _, signed_by = line.partition(" ")
        for name, suite in NEWEST.items():
            if re.search(rf"/{name}/?$", uri):
                key = f"[signed-by={signed_by}] " if signed_by.startswith("/") else ""
                return f"deb {key}{uri} {suite} main\n"
    raise StackError("this system's sources name neither Debian's archive nor Ubuntu's")


def _own_sources(scratch: Path) -> str:
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(SIGNED_BY)"]
    return _run([*command, "Created-By: Packages"], scratch)


def _once(home: Path, fill: Callable[[Path, Get], None], what: str, say: Say) -> Path:
    """Have `fill` make a root in a folder to work in, and when all is well name that `home`."""
    if missing := [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]:
        raise StackError(f"{missing[0]} is needed to fetch {what}")
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.parent / f".{home.name}.lock"):
        if not home.is_dir():
            say(f"fetching {what} from the package archive, once …")
            for left in home.parent.glob(f".{home.name}-*"):  # by a run that was killed
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as name:
                scratch = Path(name)
                (scratch / "archives/partial").mkdir(parents=True)
                get: Get = ["apt-get", "-qq", "-o", "Acquire::http::Timeout=30"]
                get += ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
                get += ["-o", f"Dir::Cache::archives={scratch}/archives"]
                fill(scratch, get)
                (scratch / "root").rename(home)
    return home


def _download(get: Get, packages: Sequence[str], scratch: Path) -> None:
    fetch = ["install", "--download-only", "--yes", "--no-install-recommends", *packages]
    try:
        _run([*get, *fetch], scratch)
    except StackError:  # the system's lists are missing or old
        own = [*get, *_own_lists(scratch)]
        _run([*own, "update"], scratch)
        _run([*own, *fetch], scratch)


def _own_lists(scratch: Path) -> Get:
    (scratch / "lists/partial").mkdir(parents=True, exist_ok=True)
    return ["-o", f"Dir::State::lists={scratch}/lists", "-o", "APT::Update::Error-Mode=any"]


def _unpack(scratch: Path) -> None:
    for archive in sorted((scratch / "archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", archive, scratch / "root"], scratch)


def _settle(root: Path) -> None:
    """Do what the scripts of the packages would have done, as far as programs need it to run."""
    for name in MERGED:
        (root / "usr" / name).mkdir(exist_ok=True)
        if (folder := root / name).is_dir() and not folder.is_symlink():
            _run(["cp", "--archive", f"{folder}/.", root / "usr" / name], root)
            shutil.rmtree(folder)
            folder.symlink_to(f"usr/{name}")
    for name in ("passwd", "group"):
        shutil.copy(root / "usr/share/base-passwd" / f"{name}.master", root / "etc" / name)
    (root / "etc/shadow").write_text("root:*:1::::::\n", encoding="utf-8")
    (root / "etc/shadow").chmod(0o600)
    for name in ("tmp", "run", "root", "dev", "proc", "sys"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/machine-id").touch()


def _run(command: Sequence[str | Path], folder: Path) -> str:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        reason = next((line for line in output if line.startswith(("E:", "dpkg-deb:"))), output[-1])
        raise StackError(
            f"packages cannot be fetched ({reason}): let this machine reach its package archive"
        ) from error
