"""Makes local images that stand in for those of a registry, of the distribution's packages.

For machines that reach no registry, and for tests: under the same names, with the same entrypoints
and accounts, they serve docker-compose.yml as it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from archive import fetch_newest, fetch_root
from stack import DOWNLOAD_SECONDS, PROJECT, StackError, locked, stack_folder, to_stderr

BASE = "trainwarden-base:local"
ROOT_PACKAGES = (
    *("base-files", "base-passwd", "bash", "busybox-static", "coreutils", "dash", "dbus"),
    *(
        "findutils",
        "grep",
        "libc-bin",
        "libstdc++6",
        "passwd",
        "procps",
        "python3",
        "python3-venv",
        "sed",
    ),
    *("systemd", "systemd-sysv", "tar", "tzdata", "util-linux"),
)
"""Enough for the Dockerfile, for the servers, and for a systemd that runs as in a real system."""
NEWEST_PACKAGES = ("docker-compose", "prometheus", "prometheus-alertmanager", "promtool")

OFFLINE: Mapping[str, str] = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
"""Makes pip take packages from the image itself."""

Docker = Callable[..., str]
"""Runs `docker` with arguments, and returns what it prints."""


def root() -> Path:
    """A small root of this system's own release, fetched once. Raises StackError."""
    return fetch_root(_place("root", ROOT_PACKAGES), ROOT_PACKAGES)


def newest() -> Path:
    """Compose and the servers as the distribution's newest suite has them, fetched once."""
    return fetch_newest(_place("newest", NEWEST_PACKAGES), NEWEST_PACKAGES)


def _place(name: str, packages: Sequence[str]) -> Path:
    """Where these packages are kept: elsewhere once there are others to keep."""
    return stack_folder() / f"{name}-{zlib.crc32(' '.join(packages).encode()):08x}"


def wheels(python: str) -> Path:
    """A folder with all that a wheel of this project needs on Python `python`, such as 3.11."""
    home = stack_folder() / f"wheels-{python}"
    with (PROJECT / "pyproject.toml").open("rb") as file:
        described = tomllib.load(file)
    needed = [*described["build-system"]["requires"], *described["project"]["dependencies"]]
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        complete = home / ".complete"
        if not complete.exists() or complete.read_text(encoding="utf-8") != "\n".join(needed):
            to_stderr("fetching Python packages, once …")
            _download(needed, python, home)
            complete.write_text("\n".join(needed), encoding="utf-8")
    return home


def _download(needed: Sequence[str], python: str, home: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet"]
    command += ["--dest", home]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--python-version", python]
    try:
        subprocess.run(
            [*command, *needed],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise StackError(f"Python packages cannot be fetched: {output[-1]}") from error


def python_of(root: Path) -> str:
    """The version of a root's Python, such as 3.11."""
    return (root / "usr/bin/python3").readlink().name.removeprefix("python")


def make_base(docker: Docker, name: str = BASE) -> None:
    """What `BASE` of the Dockerfile may be: a root, and the packages that pip will ask for."""
    made = root()
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        archive = Path(folder) / "root.tar"
        subprocess.run(["tar", "-C", made, "-cf", archive, "."], check=True)
        kept = wheels(python_of(made))
        pack: list[str | Path] = ["tar", "-C", kept.parent, "--append", "-f", archive]
        subprocess.run([*pack, f"--transform=s/^{kept.name}/wheels/", kept.name], check=True)
        changes = [f"--change=ENV {key}={value}" for key, value in OFFLINE.items()]
        docker("import", *changes, archive, name)


def make_prometheus(docker: Docker, name: str, base: str = BASE) -> None:
    programs = {"prometheus": "prometheus", "promtool": "promtool"}
    _make_server(docker, name, base, programs, "/prometheus")


def make_alertmanager(docker: Docker, name: str, base: str = BASE) -> None:
    programs = {"prometheus-alertmanager": "alertmanager", "amtool": "amtool"}
    _make_server(docker, name, base, programs, "/alertmanager")


def _make_server(
    docker: Docker, name: str, base: str, programs: Mapping[str, str], data: str
) -> None:
    """An image like the server's own: its programs in /bin, run as nobody, its data in a volume.

    `programs` says what each of the package is called there; the first is the server.
    """
    made = newest()
    with tempfile.TemporaryDirectory(prefix="standin-") as place:
        folder = Path(place)
        (folder / "root/usr/bin").mkdir(parents=True)
        (folder / "data").mkdir()
        for old, new in programs.items():
            shutil.copy(made / "usr/bin" / old, folder / "root/usr/bin" / new)
        (folder / "root/usr/bin/wget").symlink_to("busybox")
        # Debian's builds read templates and pages from there.
        shutil.copytree(
            made / "usr/share/prometheus", folder / "root/usr/share/prometheus", symlinks=True
        )
        (folder / "Dockerfile").write_text(
            f"FROM {base}\n"
            "COPY root/ /\n"
            f"COPY --chown=65534:65534 data {data}\n"
            "USER nobody\n"
            f"VOLUME {data}\n"
            f"WORKDIR {data}\n"
            f'ENTRYPOINT ["/bin/{next(iter(programs.values()))}"]\n',
            encoding="utf-8",
        )
        docker("build", "--quiet", "--tag", name, folder)
