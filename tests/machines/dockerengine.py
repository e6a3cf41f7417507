"""A Docker engine of our own for tests: fetched if need be, started in a folder, and stopped.

It installs no package, and no engine that runs on the machine is touched: ours has data, sockets
and containerd namespaces of its own, and no bridge. It needs root. Old ones leave
/etc/docker/key.json.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import children
from stack import DOWNLOAD_SECONDS, StackError, locked, stack_folder, to_stderr

PACKAGES = ("docker.io", "busybox-static")
START_SECONDS = 60.0
STOP_SECONDS = 60.0
TOOLS = ("sh", "cat", "date", "dd", "echo", "false", "ls", "mkdir", "rm", "sleep", "tail", "true")


@dataclass(frozen=True, slots=True)
class Programs:
    """What an engine and its images are made of."""

    environment: Mapping[str, str]
    """With which `dockerd` and `docker` are found, and find their own."""
    busybox: Path
    """A shell and its tools in one program that needs no libraries."""


def find_programs(folder: Path | None = None, say: Callable[[str], None] = to_stderr) -> Programs:
    """From PATH what is there, all else from the distribution's packages, unpacked below `folder`.

    `folder` is `stack_folder()` when None; what was unpacked there before is used again. Raises
    StackError when they cannot be had.
    """
    where = stack_folder() if folder is None else folder
    home = where / "docker"
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / "lock"):
        if not home.is_dir():
            say("fetching a Docker engine from this system's package archive, once …")
            _unpack(home)
    libraries = [str(path) for path in home.glob("usr/lib/*-linux-gnu*")]
    environment = dict(os.environ)
    if shutil.which("dockerd") is None:
        environment["PATH"] = os.pathsep.join(
            [str(home / "usr/bin"), str(home / "usr/sbin"), environment.get("PATH", os.defpath)]
        )
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    busybox = next(
        path for path in (home / "bin/busybox", home / "usr/bin/busybox") if path.exists()
    )
    return Programs(environment, busybox)


class DockerEngine:
    """An engine in a folder of its own, which is removed with all that is in it by `close`."""

    def __init__(self, programs: Programs) -> None:
        """Raises StackError where none can run."""
        if os.geteuid() != 0:
            raise StackError("a Docker engine needs root: run this as root")
        self._programs = programs
        # short, for it holds sockets
        self.folder = Path(tempfile.mkdtemp(prefix="engine-"))
        # not the folder's name, which may begin with "_", as that of a namespace may not
        self._namespace = f"engine-{secrets.token_hex(8)}"
        (self.folder / "daemon.json").write_text("{}\n", encoding="utf-8")
        self._log = self.folder / "dockerd.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    def start(self) -> None:
        """Returns when it answers. Raises StackError with the end of its log when it does not."""
        folder = self.folder
        command: list[str | Path] = [
            "dockerd",
            *("--host", f"unix://{self.socket}"),
            *("--config-file", folder / "daemon.json"),
            *("--data-root", folder / "data"),
            *("--exec-root", folder / "exec"),
            *("--pidfile", folder / "pid"),
            *("--containerd-namespace", self._namespace),
            *("--containerd-plugins-namespace", f"{self._namespace}-plugins"),
            # nothing on the machine's network is changed; containers have loopback or the machine's
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
            *("--shutdown-timeout", "5"),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=self._programs.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=children.end_with(os.getpid()),  # noqa: PLW1509 - it only calls prctl
            )
        deadline = time.monotonic() + START_SECONDS
        while self._run("version").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self._log.read_text("utf-8", "replace").splitlines()[-15:]
                self.stop()
                raise StackError("\n".join(["the Docker engine does not start:", *tail]))
            time.sleep(0.1)

    def stop(self) -> None:
        """End it, and with it all containers; they are there again after a start."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """Remove every container, end the engine, and remove its folder."""
        if self._process is not None:
            names = self._run("ps", "--all", "--quiet").stdout.split()
            if names:
                self._run("rm", "--force", *names)
        self.stop()
        # A network that it called `host`, and all else that one which was killed had mounted.
        for place in reversed(_mounted_below(self.folder)):
            subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def docker(self, *arguments: str | Path) -> str:
        """What `docker` prints, without the last newline. Raises StackError when it fails."""
        result = self._run(*arguments)
        if result.returncode:
            raise StackError(f"docker {arguments[0]}: {result.stderr.strip()}")
        return result.stdout.rstrip("\n")

    def make_image(self, name: str) -> None:
        """A small image with a shell, out of nothing but busybox."""
        root = self.folder / "image"
        for place in ("bin", "tmp", "proc", "sys", "dev", "etc"):
            (root / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(self._programs.busybox, root / "bin/busybox")
        for tool in TOOLS:
            (root / "bin" / tool).symlink_to("busybox")
        archive = self.folder / "image.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        self.docker("import", archive, name)
        archive.unlink()
        shutil.rmtree(root)

    def _run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "--host", f"unix://{self.socket}", *arguments],
            env=self._programs.environment,
            capture_output=True,
            text=True,
            check=False,
        )


def _mounted_below(folder: Path) -> list[str]:
    """Where something is mounted in `folder`, in the order in which that was done (proc(5))."""
    lines = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
    # a name with a space is written otherwise there; none of an engine's has one
    places = [line.split()[1] for line in lines]
    return [place for place in places if Path(place).is_relative_to(folder)]


def _unpack(home: Path) -> None:
    """Download the packages with what they need and lack here, and unpack them at `home`."""
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".docker-") as name:
        scratch = Path(name)
        for place in ("archives/partial", "lists/partial"):
            (scratch / place).mkdir(parents=True)
        get = ["apt-get", "-qq", "-o", "Acquire::http::Timeout=30", "-o", "Debug::NoLocking=1"]
        get += ["-o", f"Dir::Cache::archives={scratch}/archives"]
        own = [*get, "-o", f"Dir::State::lists={scratch}/lists", "-o", f"Dir::Cache={scratch}"]
        fetch = ["install", "--reinstall", "--download-only", "--yes", "--no-install-recommends"]
        try:
            # by the system's lists; where these are missing or old, by fresh ones of our own
            if _apt(*get, *fetch, *PACKAGES).returncode:
                for command in (("update",), (*fetch, *PACKAGES)):
                    result = _apt(*own, *command)
                    result.check_returncode()
            for archive in (scratch / "archives").glob("*.deb"):
                _apt("dpkg-deb", "-x", archive, scratch / "root").check_returncode()
        except (OSError, subprocess.SubprocessError) as error:
            output = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise StackError(
                f"no Docker engine can be fetched ({output[0]}): let this machine reach its "
                "package archive, or install docker.io and busybox-static"
            ) from error
        (scratch / "root").rename(home)


def _apt(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
