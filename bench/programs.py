"""Programs under measurement: started, asked for their pages, and what that cost them."""

from __future__ import annotations

import gzip
import http.client
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from results import mebibytes, milliseconds
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.process_table import read_cpu_clock
from trainwarden_exporter.processes.procfs import read_processes, read_resident_bytes

READY_SECONDS = 60.0
AS_PROMETHEUS = {
    "X-Prometheus-Scrape-Timeout-Seconds": "4",
    "Accept": "application/openmetrics-text;version=1.0.0,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}
"""What Prometheus 2.42 asks with (acceptHeader in scrape/scrape.go), at the shipped timeout."""


REFERENCED = re.compile(r"^Referenced: +(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many scrapes cost: seconds each, CPU seconds each, bytes and series at the end."""

    median: float
    p99: float
    slowest: float
    cpu: float
    resident: int
    series: int


COST_COLUMNS = ("CPU", "median", "p99", "slowest", "resident", "series")


def cost_cells(cost: Cost) -> tuple[str, ...]:
    """The cells of COST_COLUMNS."""
    spans = (cost.cpu, cost.median, cost.p99, cost.slowest)
    return (*map(milliseconds, spans), mebibytes(cost.resident), str(cost.series))


class Program:
    """A running program that serves metrics on `port`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str) -> None:
        self.port = port
        self._pid = process.pid
        self._path = path
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def scrape(self, path: str | None = None) -> bytes:
        """One page, asked for as Prometheus does: over a connection that is kept.

        Reconnects where the program has closed the connection meanwhile.
        """
        try:
            return self._ask(self._connection, path)
        except http.client.RemoteDisconnected:
            self._connection.close()
            return self._ask(self._connection, path)

    def _ask(self, connection: http.client.HTTPConnection, path: str | None = None) -> bytes:
        connection.request("GET", path or self._path, headers=AS_PROMETHEUS)
        answer = connection.getresponse()
        page = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"port {self.port} says {answer.status}: {page[:300]!r}")
        packed = answer.headers.get("Content-Encoding") == "gzip"
        return gzip.decompress(page) if packed else page

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def cpu(self) -> float:
        """CPU seconds used so far by what runs of it."""
        return sum(read_cpu_clock(pid) or 0 for pid in self._pids()) / 1e9

    def reload(self) -> None:
        """Let it read its configuration again."""
        os.kill(self._pid, signal.SIGHUP)

    def resident(self) -> int:
        """Bytes of memory in use."""
        return sum(read_resident_bytes(pid) or 0 for pid in self._pids())

    def disk_read(self) -> int:
        """Bytes that were read from disks so far for what runs of it (proc(5): io)."""
        return sum(disk_bytes_read(pid) for pid in self._pids())

    def forget_pages(self) -> None:
        """From here on, pages that are touched count again (proc(5): clear_refs)."""
        for pid in self._pids():
            Path(f"/proc/{pid}/clear_refs").write_text("1", encoding="ascii")

    def touched_pages(self) -> int:
        """Pages of memory that were touched since then."""
        rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text("ascii") for pid in self._pids())
        kib = sum(int(found) for text in rollups for found in REFERENCED.findall(text))
        return (kib << 10) // os.sysconf("SC_PAGE_SIZE")

    def measure(
        self, scrapes: int, *, warm: int = 3, pause: float = 0.0, seconds: float = 60.0
    ) -> Cost:
        """The cost of so many scrapes one after the other, after some that are not counted.

        After `seconds` there are no more of them.
        """
        for _ in range(warm):
            page = self.scrape()
        cpu, taken, until = self.cpu(), list[float](), time.monotonic() + seconds
        while len(taken) < scrapes and (not taken or time.monotonic() < until):
            time.sleep(pause)
            began = time.perf_counter()
            page = self.scrape()
            taken.append(time.perf_counter() - began)
        return Cost(
            statistics.median(taken),
            sorted(taken)[max(0, round(0.99 * len(taken)) - 1)],
            max(taken),
            (self.cpu() - cpu) / len(taken),
            self.resident(),
            sum(1 for line in page.splitlines() if line and not line.startswith(b"#")),
        )

    def measure_together(self, scrapes: int, rounds: int) -> tuple[float, float]:
        """CPU seconds and seconds, by the median, of so many scrapes at once."""
        connections = [
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120) for _ in range(scrapes)
        ]
        taken, cpu = list[float](), self.cpu()
        with ThreadPoolExecutor(scrapes) as pool:
            for _ in range(rounds):
                began = time.perf_counter()
                list(pool.map(self._ask, connections))
                taken.append(time.perf_counter() - began)
        cpu = (self.cpu() - cpu) / rounds
        for connection in connections:
            connection.close()
        return cpu, statistics.median(taken)

    def _pids(self) -> Sequence[int]:
        return [self._pid, *descendants(read_processes(), [self._pid])]


def disk_bytes_read(pid: int | str) -> int:
    """Bytes that were read from disks so far for a process, "self" or a number."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


@contextmanager
def running(
    command: Sequence[str | Path],
    port: int,
    *,
    path: str = "/metrics",
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
    ready: str | None = None,
) -> Iterator[Program]:
    """The program, once it answers, and until the block ends.

    For a program that listens before it is ready, `ready` is a page that then returns 200.
    """
    with _output(log) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
        )
        program = Program(process, port, path)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not _answers(port, ready):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    raise SystemExit(f"{command[0]} does not serve:\n{output.read().decode()}")
                time.sleep(0.05)
            yield program
        finally:
            program.close()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _output(log: Path | None) -> IO[bytes]:
    return tempfile.TemporaryFile() if log is None else log.open("w+b")


def _answers(port: int, ready: str | None) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.connect()
        if ready is None:
            return True
        connection.request("GET", ready)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def exporter(config: Path, port: int) -> list[str | Path]:
    """The command that starts the exporter with that configuration."""
    address = f"--web.listen-address=127.0.0.1:{port}"
    program = Path(sys.executable).with_name("trainwarden-exporter")
    return [program, "run", "--config.file", config, address, "--log.level=error"]
