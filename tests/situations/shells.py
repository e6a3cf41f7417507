"""Shells as users have them: each runs one command line after the other."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from tests.waiting import until

import archive
import stack

COMMAND_SECONDS = 900.0
"""How long a command may take, the training too, on a loaded machine."""


@dataclass(frozen=True)
class Host:
    """A user's folder, and the environment of a login there."""

    folder: Path
    environment: Mapping[str, str]


Typed = Callable[[str], tuple[int, str]]
"""Runs one command line; returns its exit status and its output."""
Shell = Callable[[Host], AbstractContextManager[Typed]]


def require(*command: str | Path) -> None:
    """Skips the test where the command fails or does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(str(error))
    if done.returncode:
        pytest.skip(f"`{' '.join(map(str, command))}`: {done.stderr.strip()}")


def behind(*prefix: str, **variables: str) -> Shell:
    """Each command is a process of its own: the last argument of `prefix`."""

    @contextmanager
    def opened(host: Host) -> Iterator[Typed]:
        require(*prefix, "true")

        def typed(command: str) -> tuple[int, str]:
            done = subprocess.run(
                [*prefix, command],
                cwd=host.folder,
                env={**host.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            return done.returncode, done.stdout

        yield typed

    return opened


LINE = "({command}) </dev/null >{output} 2>&1; echo $? >{status}\n"


def within(*program: str | Path, line: str = LINE) -> Shell:
    """All commands are lines of the input of one `program`, a shell or what acts like one."""

    @contextmanager
    def opened(host: Host) -> Iterator[Typed]:
        numbers = count(1)
        with subprocess.Popen(
            program,
            cwd=host.folder,
            env=host.environment,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            keyboard = process.stdin
            assert keyboard is not None

            def typed(command: str) -> tuple[int, str]:
                number = next(numbers)
                output, status = (host.folder / f"{number}.{end}" for end in ("out", "end"))
                keyboard.write(line.format(command=command, output=output, status=status))
                keyboard.flush()
                until(lambda: ended(status) or process.poll() is not None, COMMAND_SECONDS)
                return int(status.read_text()), output.read_text()

            try:
                yield typed
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    return opened


def ended(status: Path) -> bool:
    return status.exists() and status.read_text().endswith("\n")


@contextmanager
def tmux(host: Host) -> Iterator[Typed]:
    """A detached session, with a shell whose terminal the commands keep."""
    require("tmux", "-V")
    server = ("tmux", "-S", str(host.folder / "tmux"), "-f", "/dev/null")
    screen, numbers = host.folder / "screen", count(1)

    def act(*arguments: str) -> None:
        subprocess.run([*server, *arguments], cwd=host.folder, env=host.environment, check=True)

    def typed(command: str) -> tuple[int, str]:
        status = host.folder / f"{next(numbers)}.end"
        before = screen.stat().st_size if screen.exists() else 0
        act("send-keys", "-l", f"{command}; echo $? >{status}")
        act("send-keys", "Enter")
        until(lambda: ended(status), COMMAND_SECONDS)
        return int(status.read_text()), screen.read_bytes()[before:].decode().replace("\r", "")

    act("new-session", "-d", "-x", "200", "-y", "50", "sh")
    try:
        act("pipe-pane", f"cat >>{screen}")
        yield typed
    finally:
        act("kill-server")


@contextmanager
def notebook(host: Host) -> Iterator[Typed]:
    """Cells of one notebook, each with `!COMMAND`; its packages are installed into a folder."""
    packages = host.folder / "jupyter"
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--target", packages)
    require(*install, "nbclient", "ipykernel")
    kernel = replace(host, environment={**host.environment, "PYTHONPATH": str(packages)})
    program = Path(__file__).with_name("notebook.py")
    with within(sys.executable, program, line="{command}\t{output}\t{status}\n")(kernel) as typed:
        yield lambda command: typed(f"unset PYTHONPATH; {command}")


@contextmanager
def ssh(host: Host) -> Iterator[Typed]:
    """A login for each command, without a terminal, at an OpenSSH server of its own."""
    program, libraries = openssh()
    keys = host.folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        require("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    variables = " ".join(f'"{name}={value}"' for name, value in host.environment.items())
    (keys / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {keys}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {keys}/user.pub\nStrictModes no\nPermitRootLogin yes\n"
        f"SetEnv {variables}\n"
    )
    accounts = Path("/etc/passwd").read_text()
    (keys / "passwd").write_text(f"{accounts}sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
    # The account and the folder that its package creates, for this server alone.
    prepare = (
        f"mount --bind {keys}/passwd /etc/passwd && mount -t tmpfs tmpfs /run && mkdir /run/sshd"
    )
    serve = f"LD_LIBRARY_PATH={libraries} exec {program} -D -e -f {keys}/sshd_config"
    require("unshare", "--mount", "sh", "-c", prepare)
    trust = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"
    connect = f"ssh -q -F none {trust} -p {port} -i {keys}/user root@127.0.0.1".split()
    with (
        (keys / "log").open("wb") as log,
        subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{prepare} && {serve}"], stderr=log
        ) as server,
    ):
        try:
            until(lambda: answers(port) or server.poll() is not None)
            with behind(*connect)(host) as typed:
                yield lambda command: typed(f"cd {host.folder} && {command}")
        finally:
            server.kill()


def openssh() -> tuple[str, str]:
    """The server, of this system or of its package, and where the package has its libraries."""
    if found := shutil.which("sshd", path="/usr/local/sbin:/usr/sbin:/sbin"):
        return found, ""
    try:
        home = archive.fetch_missing(stack.stack_folder() / "openssh", ["openssh-server"])
    except stack.StackError as error:
        pytest.skip(str(error))
    libraries = (*home.glob("usr/lib/*-linux-*"), *home.glob("lib/*-linux-*"))
    return f"{home}/usr/sbin/sshd", ":".join(map(str, libraries))


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
