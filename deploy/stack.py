"""Finds Prometheus and Alertmanager, or unpacks the distribution's packages of them in a folder.

Nothing is installed: installing Debian's packages would start services on the default ports.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
DOWNLOAD_SECONDS = 300


class StackError(Exception):
    """Something the stack needs cannot be had; one line that says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of the stack that are not this project's own."""

    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path


@dataclass(frozen=True, slots=True)
class Package:
    """One package of the distribution: a server, known under any of `names`, and its tool."""

    name: str
    title: str
    names: tuple[str, ...]
    tool: str
    oldest: tuple[int, int]


PROMETHEUS = Package(
    name="prometheus",
    title="Prometheus",
    names=("prometheus",),
    tool="promtool",
    oldest=(2, 42),  # the first with keep_firing_for, which the shipped rules use
)
ALERTMANAGER = Package(
    name="prometheus-alertmanager",
    title="Alertmanager",
    names=("alertmanager", "prometheus-alertmanager"),
    tool="amtool",
    oldest=(0, 25),
)


def stack_folder() -> Path:
    """Where what `make up` needs is kept: $TRAINWARDEN_STACK_DIR, else `.stack` in the project."""
    return Path(os.environ.get("TRAINWARDEN_STACK_DIR") or PROJECT / ".stack").absolute()


def to_stderr(line: str) -> None:
    """Print one line of progress."""
    print(line, file=sys.stderr, flush=True)


def find_binaries(folder: Path | None = None, say: Callable[[str], None] = to_stderr) -> Binaries:
    """The programs from PATH, else from the distribution's packages unpacked below `folder`.

    `folder` is `stack_folder()` when None; what was unpacked there before is used again. Safe to
    call from several processes at once. Raises StackError when a program cannot be had.
    """
    where = stack_folder() if folder is None else folder
    prometheus, promtool = _find(PROMETHEUS, where, say)
    alertmanager, amtool = _find(ALERTMANAGER, where, say)
    return Binaries(prometheus, promtool, alertmanager, amtool)


def _find(package: Package, folder: Path, say: Callable[[str], None]) -> tuple[Path, Path]:
    if (found := _on_path(package)) is not None:
        return found
    home = folder / package.name
    if not home.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock"):
            if not home.is_dir():
                say(f"fetching {package.title} from this system's package archive, once …")
                _unpack(package, folder, home)
    server, tool = home / "usr/bin" / package.names[-1], home / "usr/bin" / package.tool
    if (has := version(server)) < package.oldest:
        raise StackError(
            f"this system's {package.title} is {_dotted(has)}, too old for the shipped rules: "
            + _put_on_path(package)
        )
    return server, tool


def _on_path(package: Package) -> tuple[Path, Path] | None:
    """The server and its tool, if both are on PATH, run, and are not too old."""
    server = next(filter(None, map(shutil.which, package.names)), None)
    tool = shutil.which(package.tool)
    if server is None or tool is None:
        return None
    try:
        usable = version(Path(server)) >= package.oldest
    except StackError:
        usable = False
    return (Path(server), Path(tool)) if usable else None


def version(server: Path) -> tuple[int, int]:
    """The major and minor version that `server --version` reports.

    Raises StackError when it does not run, as where a shared library is missing.
    """
    try:
        result = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
        return parse_version(result.stdout + result.stderr)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise StackError(f"{server} does not run: {said.strip().splitlines()[0]}") from error


def parse_version(text: str) -> tuple[int, int]:
    """`(2, 42)` of `prometheus, version 2.42.0+ds …`; ValueError where there is no version."""
    match = re.search(r"version v?(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError("it reports no version")
    return int(match[1]), int(match[2])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting for whoever holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(package: Package, folder: Path, home: Path) -> None:
    """Download and unpack `package`, and only when all is well give it the name `home`."""
    if missing := [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]:
        raise StackError(
            f"there is no usable {package.title} on PATH and no {missing[0]} to fetch it with: "
            + _put_on_path(package)
        )
    for left in folder.glob(f".{package.name}-*"):  # by a run that was killed; we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{package.name}-") as name:
        scratch = Path(name)
        archives = _download(package, scratch)
        for archive in [*archives, *_download_pages(archives, scratch)]:
            _run(["dpkg-deb", "-x", archive, scratch / "root"], scratch, package)
        relocate(scratch / "root", package.names[-1])
        (scratch / "root").rename(home)


def _download(package: Package, scratch: Path) -> list[Path]:
    """Fetch the package by the system's lists; where that fails, by fresh ones of our own.

    Fresh lists go to a folder of ours, so root is never needed.
    """
    get = ["apt-get", "-qq", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"]
    try:
        _run([*get, "download", package.name], scratch, package)
    except StackError:
        for folder in ("lists/partial", "archives/partial"):
            (scratch / folder).mkdir(parents=True)
        own = [*get, "-o", f"Dir::State::lists={scratch}/lists", "-o", f"Dir::Cache={scratch}"]
        _run([*own, "-o", "APT::Update::Error-Mode=any", "update"], scratch, package)
        _run([*own, "download", package.name], scratch, package)
    return list(scratch.glob("*.deb"))


def _download_pages(archives: Iterable[Path], scratch: Path) -> list[Path]:
    """Fetch the scripts and fonts that the web pages of Debian's build load, if they can be had.

    Prometheus works without them; its pages are then plain.
    """
    names = {"libjs-d3"}  # what libjs-rickshaw stands on
    for archive in archives:
        fields: list[str | Path] = ["dpkg-deb", "-f", archive, "Depends"]
        depends = subprocess.run(fields, capture_output=True, text=True, check=False).stdout
        names |= set(re.findall(r"(?:libjs|fonts)-[a-z0-9.+-]+", depends))
    if len(names) == 1:
        return []
    pages = scratch / "pages"
    pages.mkdir()
    command = ["apt-get", "-qq", "-o", "Acquire::http::Timeout=30", "download", *sorted(names)]
    subprocess.run(command, cwd=pages, capture_output=True, check=False, timeout=DOWNLOAD_SECONDS)
    return sorted(pages.glob("*.deb"))


def relocate(root: Path, server: str) -> None:
    """Make a server of Debian's find its pages and templates below `root`, where it was unpacked.

    Debian's builds read them from /usr/share/prometheus, and Alertmanager does not start without.
    That path, wherever the program holds it, gives way to one of equal length through a file
    descriptor, which a launcher opens before it becomes the program.
    """
    program = root / "usr/bin" / server
    moved = root / "usr/libexec" / server
    moved.parent.mkdir(parents=True, exist_ok=True)
    old = b"/usr/share/prometheus"
    content = program.read_bytes().replace(old, b"/proc/self/fd/9".ljust(len(old), b"/"))
    moved.write_bytes(content)
    moved.chmod(0o755)
    program.write_text(
        "#!/bin/sh\n"
        'usr="$(dirname "$(dirname "$(readlink -f "$0")")")"\n'
        'exec 9< "$usr/share/prometheus"\n'
        f'exec "$usr/libexec/{server}" "$@"\n'
    )


def _run(command: Sequence[str | Path], scratch: Path, package: Package) -> None:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(
            command,
            cwd=scratch,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        reason = next((line for line in said if line.startswith(("E:", "dpkg-deb:"))), said[-1])
        raise StackError(
            f"there is no usable {package.title} on PATH and it cannot be fetched ({reason}): "
            f"let this machine reach its package archive, or {_put_on_path(package)}"
        ) from error


def _put_on_path(package: Package) -> str:
    return (
        f"put {package.names[0]} and {package.tool}, "
        f"{package.title} {_dotted(package.oldest)} or newer, on PATH"
    )


def _dotted(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))
