"""Finds Prometheus and Alertmanager, or unpacks the distribution's packages of them in a folder.

It installs no package: installing Debian's packages would start services on the default ports.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import suites

PROJECT = Path(__file__).resolve().parent.parent
DOWNLOAD_SECONDS = 300


class StackError(ValueError):
    """Something the stack needs cannot be had: what, in one line, and the commands to get it."""


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
    """Where programs, logs and history are kept: $TRAINWARDEN_STACK_DIR, else `.stack` in a clone.

    Without a clone: `stack` below $TRAINWARDEN_FOLDER, else in the state folder of this account.
    """
    if folder := os.environ.get("TRAINWARDEN_STACK_DIR"):
        return Path(folder).absolute()
    if (PROJECT / "pyproject.toml").exists():
        return PROJECT / ".stack"
    if folder := os.environ.get("TRAINWARDEN_FOLDER"):
        return Path(folder).absolute() / "stack"
    # the base directory specification ignores a relative path
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local/state"
    return base / "trainwarden" / "stack"


@contextmanager
def private_files() -> Iterator[None]:
    """Meanwhile whatever is created is for this account only, whatever its umask."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def script(name: str) -> Path:
    """A command of this Python's environment. Raises StackError if it is not installed."""
    folders = [str(Path(sys.executable).parent), sysconfig.get_path("scripts")]
    if sysconfig.get_preferred_scheme("user") in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise StackError(f"there is no {name} in {folders[0]}: pip install 'trainwarden[stack]'")
    return Path(found)


def stack_suite() -> str | None:
    """The suite whose packages are to be used, whatever is on PATH; None for this machine's own.

    $TRAINWARDEN_STACK_SUITE, like `sid`: for trying what the distribution will have.
    """
    return os.environ.get("TRAINWARDEN_STACK_SUITE") or None


def to_stderr(line: str) -> None:
    """Print one line of progress."""
    print(line, file=sys.stderr, flush=True)


def find_binaries(folder: Path | None = None, say: Callable[[str], None] = to_stderr) -> Binaries:
    """The programs from PATH, else from the distribution's packages unpacked below `folder`.

    `folder` is `stack_folder()` when None; what was unpacked there before is used again. When
    `stack_suite()` names a suite, its packages are used. Safe to call from several processes at
    once. Raises StackError when a program cannot be had.
    """
    where, suite = stack_folder() if folder is None else folder, stack_suite()
    if suite is not None:
        where /= f"suite-{_checked(suite)}"
    prometheus, promtool = _find(PROMETHEUS, where, say, suite)
    alertmanager, amtool = _find(ALERTMANAGER, where, say, suite)
    return Binaries(prometheus, promtool, alertmanager, amtool)


def _checked(suite: str) -> str:
    try:
        return suites.checked(suite)
    except suites.SuiteError as error:
        raise StackError(f"TRAINWARDEN_STACK_SUITE: {error}") from error


def _find(
    package: Package, folder: Path, say: Callable[[str], None], suite: str | None
) -> tuple[Path, Path]:
    if suite is None and (found := _on_path(package)) is not None:
        return found
    home = folder / package.name
    if not home.is_dir():
        with private_files():
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "lock"):
                if not home.is_dir():
                    source = "this system's package archive" if suite is None else f"suite {suite}"
                    say(f"fetching {package.title} from {source}, once …")
                    _unpack(package, folder, home, suite)
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
        output = getattr(error, "stderr", "") or str(error)
        raise StackError(f"{server} does not run: {output.strip().splitlines()[0]}") from error


def parse_version(text: str) -> tuple[int, int]:
    """`(2, 42)` of `prometheus, version 2.42.0+ds …`; ValueError where there is no version."""
    match = re.search(r"version v?(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError("it reports no version")
    return int(match[1]), int(match[2])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting until it is free."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(package: Package, folder: Path, home: Path, suite: str | None) -> None:
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
        get = ["apt-get", "-qq", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"]
        if suite is not None:
            get += _of_suite(suite, scratch)
        archives = _download(package, get, scratch, own_lists=suite is not None)
        for archive in [*archives, *_download_pages(archives, get, scratch)]:
            _run(["dpkg-deb", "-x", archive, scratch / "root"], scratch, package)
        relocate(scratch / "root", package.names[-1])
        (scratch / "root").rename(home)


def _of_suite(suite: str, scratch: Path) -> list[str]:
    try:
        return suites.write(suite, suites.read_archive(), scratch)
    except suites.SuiteError as error:
        raise StackError(f"suite {suite} cannot be had: {error}") from error


def _download(package: Package, get: list[str], scratch: Path, *, own_lists: bool) -> list[Path]:
    """Fetch the package by the system's lists; where that fails, by fresh ones of our own.

    Fresh lists go to a folder of ours, so root is never needed. Newer suites have the tool in a
    package of its own, of the same name.
    """
    try:
        if own_lists:
            _run([*get, "-o", "APT::Update::Error-Mode=any", "update"], scratch, package)
        _run([*get, "download", package.name], scratch, package)
    except StackError:
        if own_lists:
            raise
        for folder in ("lists/partial", "archives/partial"):
            (scratch / folder).mkdir(parents=True)
        get += ["-o", f"Dir::State::lists={scratch}/lists", "-o", f"Dir::Cache={scratch}"]
        return _download(package, get, scratch, own_lists=True)
    if any(package.tool in _depends(archive) for archive in scratch.glob("*.deb")):
        _run([*get, "download", package.tool], scratch, package)
    return list(scratch.glob("*.deb"))


def _depends(archive: Path) -> set[str]:
    """The names of the packages that this one needs."""
    fields: list[str | Path] = ["dpkg-deb", "-f", archive, "Depends"]
    output = subprocess.run(fields, capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]+)", output))


def _download_pages(archives: Iterable[Path], get: list[str], scratch: Path) -> list[Path]:
    """Fetch the scripts and fonts that the web pages of Debian's build load, if they can be had.

    Prometheus works without them; its pages are then plain. From 3.5 on Debian's has no pages.
    """
    names = {"libjs-d3"}  # what libjs-rickshaw stands on
    for archive in archives:
        names |= {name for name in _depends(archive) if name.startswith(("libjs-", "fonts-"))}
    if len(names) == 1:
        return []
    pages = scratch / "pages"
    pages.mkdir()
    command = [*get, "download", *sorted(names)]
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
        output = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        reason = next((line for line in output if line.startswith(("E:", "dpkg-deb:"))), output[-1])
        raise StackError(
            f"there is no usable {package.title} on PATH and it cannot be fetched ({reason}): "
            f"let this machine reach its package archive, or {_put_on_path(package)}"
        ) from error


def _put_on_path(package: Package) -> str:
    commands = how_to_install()
    gap = "\n  " if "\n" in commands else " "
    return (
        f"put {package.names[0]} and {package.tool}, {package.title} {_dotted(package.oldest)}"
        f" or newer, on PATH:{gap}" + commands.replace("\n", gap)
    )


INSTALL: Mapping[str, str] = {
    "alpine": "apk add prometheus alertmanager",
    "arch": "pacman -S prometheus alertmanager",
    "suse": "zypper install golang-github-prometheus-prometheus"
    " golang-github-prometheus-alertmanager",
}
"""The command that installs both programs, by ID or ID_LIKE of os-release(5).

Fedora and EPEL have Prometheus 2.32, which is too old for the shipped rules
(https://packages.fedoraproject.org/pkgs/golang-github-prometheus/golang-github-prometheus/).
"""

RELEASES = {"prometheus": "3.5.3", "alertmanager": "0.33.1"}
"""The upstream releases that a user is given elsewhere: those of docker-compose.yml."""
CPUS = {"x86_64": "amd64", "aarch64": "arm64"}
"""The name of a CPU in the names of the releases, by that of uname(2)."""


def how_to_install(release: Mapping[str, str] | None = None, cpu: str = "") -> str:
    """The command that gets both programs on this distribution and CPU, or where they are."""
    if release is None:
        try:
            release = platform.freedesktop_os_release()
        except OSError:
            release = {}
    for name in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        if name in INSTALL:
            return INSTALL[name]
    if (built_for := CPUS.get(cpu or platform.machine())) is None:
        return "from https://prometheus.io/download/"
    names = {one: f"{one}-{number}.linux-{built_for}" for one, number in RELEASES.items()}
    lines = [
        f"curl -fL https://github.com/prometheus/{one}/releases/download/v{RELEASES[one]}"
        f"/{name}.tar.gz | tar xz"
        for one, name in names.items()
    ]
    # In front: a version that is too old may be on PATH already.
    path = ":".join((*(f"$PWD/{name}" for name in names.values()), "$PATH"))
    return "\n".join((*lines, f"export PATH={path}"))


def _dotted(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))
