"""Programs under measurement: started, asked for their pages, and what that cost them."""

from __future__ import annotations

import http.client
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainwarden_exporter.processes.procfs import (
    descendants,
    read_process,
    read_processes,
    read_resident_bytes,
)

READY_SECONDS = 60.0
PEERS = Path(__file__).resolve().parent.parent / ".stack" / "peers"


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many scrapes cost: seconds each, CPU seconds each, bytes and series at the end."""

    median: float
    p99: float
    slowest: float
    cpu: float
    resident: int
    series: int


class Program:
    """A running program that serves metrics on `port`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str) -> None:
        self.port = port
        self._pid = process.pid
        self._path = path
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def scrape(self) -> bytes:
        """One page, asked for as Prometheus does: over a connection that is kept."""
        self._connection.request(
            "GET", self._path, headers={"X-Prometheus-Scrape-Timeout-Seconds": "10"}
        )
        answer = self._connection.getresponse()
        page = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"port {self.port} says {answer.status}: {page[:300]!r}")
        return page

    def cpu(self) -> float:
        """CPU seconds used so far by what runs of it."""
        found = map(read_process, self._pids())
        return sum(one.cpu_seconds for one in found if one is not None)

    def resident(self) -> int:
        """Bytes of memory in use."""
        return sum(read_resident_bytes(pid) or 0 for pid in self._pids())

    def measure(self, scrapes: int, *, warm: int = 3, pause: float = 0.0) -> Cost:
        """The cost of so many scrapes one after the other, after some that are not counted."""
        for _ in range(warm):
            page = self.scrape()
        cpu, seconds = self.cpu(), []
        for _ in range(scrapes):
            began = time.perf_counter()
            page = self.scrape()
            seconds.append(time.perf_counter() - began)
            time.sleep(pause)
        return Cost(
            statistics.median(seconds),
            sorted(seconds)[max(0, round(0.99 * len(seconds)) - 1)],
            max(seconds),
            (self.cpu() - cpu) / scrapes,
            self.resident(),
            sum(1 for line in page.splitlines() if line and not line.startswith(b"#")),
        )

    def _pids(self) -> Sequence[int]:
        return [self._pid, *descendants(read_processes(), [self._pid])]


@contextmanager
def running(
    command: Sequence[str | Path], port: int, *, path: str = "/metrics", log: Path | None = None
) -> Iterator[Program]:
    """The program, once it answers, and until the block ends."""
    with _output(log) as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            program = Program(process, port, path)
            deadline = time.monotonic() + READY_SECONDS
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    raise SystemExit(f"{command[0]} does not serve:\n{output.read().decode()}")
                time.sleep(0.05)
            yield program
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _output(log: Path | None) -> IO[bytes]:
    return tempfile.TemporaryFile() if log is None else log.open("w+b")


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def peer(package: str, program: str | None = None) -> tuple[Path, str]:
    """A program of the distribution, from PATH or its unpacked package, and its version.

    Nothing is installed. Raises SystemExit where it cannot be had.
    """
    name = program or package
    found = shutil.which(name)
    path = Path(found) if found else PEERS / package / "usr/bin" / name
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            fetched = subprocess.run(
                ["apt-get", "-qq", "download", package],
                cwd=folder,
                capture_output=True,
                check=False,
            )
            archives = list(Path(folder).glob("*.deb"))
            if fetched.returncode or not archives:
                raise SystemExit(f"{package} cannot be fetched: {fetched.stderr.decode().strip()}")
            PEERS.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg-deb", "-x", archives[0], PEERS / package], check=True)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    words = (said.stdout + said.stderr).split("version ", 1)[-1].split()
    return path, words[0].strip(",") if words else "?"
