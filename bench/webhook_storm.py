"""How the remediator answers a storm: one delivery of 10,000 alerts, and 1,000 deliveries at once.

    python bench/webhook_storm.py [--alerts 10000] [--deliveries 1000] [--connections 200]

Starts `trainwarden-remediator run` (mode observe) on files of its own, its journal on the disk,
beside an exporter and an Alertmanager that are played. Prints how long the answers took, and when
all was journaled and decided. Alertmanager's retry begins with an answer that is late, so it is the
slowest that count. The CPU time of the remediator meanwhile is reported too: on a busy host
that alone can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from aiohttp import web

from results import Result, milliseconds
from trainwarden_remediator.journal.database import connect

TOKEN = "a-token-of-some-length"  # noqa: S105 - of a remediator that ends with this script
START_SECONDS = 30.0
CONNECTIONS = 200
PATIENCE_SECONDS = 60.0
AGAIN_SECONDS = 0.5
SETTLE_SECONDS = 300.0
AFTERWARDS = 100

EXPORTER = """
runs:
  - name: storm
    workers:
      - {name: worker-0, role: rollout, memory_limit: 8GiB, match: {command: nothing-is-like-this}}
"""
REMEDIATOR = """
mode: observe
token_file: token
journal: journal.db
exporter: {{url: "{url}", config: exporter.yml}}
alertmanager: {{url: "{url}"}}
targets:
  - {{run: storm, worker: worker-0, process: {{start: [/bin/true]}}}}
"""
PAGE = """
trainwarden_collector_success{collector="host"} 1
trainwarden_collector_success{collector="workers"} 1
trainwarden_memory_effective_available_bytes 2e10
trainwarden_memory_available_floor_bytes 2e9
trainwarden_worker_processes{run="storm",worker="worker-0"} 1
trainwarden_worker_expected_processes{run="storm",worker="worker-0"} 1
trainwarden_worker_memory_bytes{run="storm",worker="worker-0"} 9e9
trainwarden_worker_memory_limit_bytes{run="storm",worker="worker-0"} 8e9
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its HTTP status (0 for none), and the seconds it took."""

    status: int
    seconds: float


def fingerprint(number: int) -> str:
    return f"{number:016x}"


def storm_alert(number: int, starts: datetime, **labels: str) -> dict[str, object]:
    """An alert unlike that of any other number, as Alertmanager sends it."""
    return {
        "status": "firing",
        "labels": {
            "alertname": "TrainingWorkerMemoryOverLimit",
            "remediation": "restart_leaking_worker",
            "run": "storm",
            "worker": "worker-0",
            "number": str(number),
            **labels,
        },
        "annotations": {"summary": "A worker holds more memory than its limit."},
        "startsAt": f"{starts:%Y-%m-%dT%H:%M:%S.%f}Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://localhost:9090/graph?g0.expr=x&g0.tab=1",
        "fingerprint": fingerprint(number),
    }


def body(numbers: Iterable[int], starts: datetime, **labels: str) -> bytes:
    """A delivery of alerts of these numbers."""
    alerts = [storm_alert(number, starts, **labels) for number in numbers]
    return json.dumps({"version": "4", "status": "firing", "alerts": alerts}).encode()


async def post_all(
    url: str, bodies: Sequence[bytes], token: str, connections: int = CONNECTIONS
) -> list[Answer]:
    """Post all of them at once, as Alertmanager does: what breaks off is posted again.

    As shipped, over fewer connections than the server's limit, above which it closes some.
    """
    connector = aiohttp.TCPConnector(limit=connections)
    timeout = aiohttp.ClientTimeout(total=60)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def post(content: bytes) -> Answer:
            began = time.monotonic()
            while True:
                try:
                    async with session.post(
                        url, data=io.BytesIO(content), headers=headers
                    ) as answer:
                        await answer.read()
                        return Answer(answer.status, time.monotonic() - began)
                except (aiohttp.ClientError, TimeoutError):
                    if time.monotonic() - began > PATIENCE_SECONDS:
                        return Answer(0, time.monotonic() - began)
                await asyncio.sleep(AGAIN_SECONDS)

        return list(await asyncio.gather(*(post(content) for content in bodies)))


def percentile(answers: Sequence[Answer], share: float) -> float:
    """The seconds within which that share of the answers came."""
    ordered = sorted(answer.seconds for answer in answers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def counted(journal: Path, query: str) -> int:
    """One number out of a journal that is in use."""
    connection = connect(journal, mode="ro")
    try:
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()


async def played(known: int) -> tuple[web.AppRunner, str]:
    """An exporter and an Alertmanager that knows of so many alerts. Returns its URL too."""
    listed = json.dumps(
        [
            {"fingerprint": fingerprint(number), "status": {"state": "active"}}
            for number in range(known)
        ]
    )

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/metrics":
            return web.Response(text=PAGE)
        return web.Response(text=listed if request.path.endswith("alerts") else "[]")

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


async def await_ready(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/-/ready") as answer:
                    if answer.status == 200:  # noqa: PLR2004
                        return
            except aiohttp.ClientError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError("the remediator did not start")
            await asyncio.sleep(0.05)


def processor_seconds(pid: int) -> float:
    """What a process has used until now (proc(5), stat: utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(what: str, answers: Sequence[Answer], seconds: float, used: float) -> tuple[str, ...]:
    """A row of the table: these answers took `seconds`, and `used` seconds of CPU, in all."""
    good = sum(answer.status == 200 for answer in answers)  # noqa: PLR2004
    shares = (percentile(answers, share) for share in (0.5, 0.99, 1))
    rate = f"{len(answers) / seconds:.0f}"
    return (what, f"{good} of {len(answers)}", *map(milliseconds, shares), rate, f"{used:.2f} s")


async def measure(folder: Path, alerts: int, deliveries: int, connections: int) -> Result:
    """Send the storm, and wait until all is decided."""
    runner, world = await played(alerts + deliveries)
    (folder / "exporter.yml").write_text(EXPORTER)
    (folder / "remediator.yml").write_text(REMEDIATOR.format(url=world))
    (folder / "token").write_text(TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, journal = f"http://127.0.0.1:{port}", folder / "journal.db"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainwarden_remediator", "run"),
        f"--config.file={folder / 'remediator.yml'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stderr=(folder / "log").open("w"),
    )
    rows = list[tuple[str, ...]]()

    async def send(what: str, bodies: Sequence[bytes], over: int = CONNECTIONS) -> None:
        used, began = processor_seconds(program.pid), time.monotonic()
        answers = await post_all(f"{url}/webhook", bodies, TOKEN, over)
        seconds = time.monotonic() - began
        rows.append(row(what, answers, seconds, processor_seconds(program.pid) - used))

    try:
        await await_ready(url)
        starts = datetime.now(UTC)
        bodies = [body([alerts + number], starts) for number in range(deliveries)]
        await send(f"one delivery of {alerts} alerts", [body(range(alerts), starts)])
        began = time.monotonic()
        await send(f"{deliveries} deliveries at once", bodies, connections)
        journaled = counted(journal, "SELECT count(*) FROM incident")
        undecided = "SELECT count(*) FROM incident WHERE closed IS NULL AND last_decision IS NULL"
        while counted(journal, undecided) and time.monotonic() - began < SETTLE_SECONDS:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        left, seconds = counted(journal, undecided), time.monotonic() - began
        await send(f"{AFTERWARDS} at once, when all is decided", bodies[:AFTERWARDS])
    finally:
        program.terminate()
        await program.wait()
        await runner.cleanup()
    return Result(
        "A storm of webhooks",
        "The remediator, whose journal is on the disk, and deliveries as of Alertmanager over "
        f"{connections} connections: time until one is answered, and what the remediator took of a "
        f"processor meanwhile. {journaled} of {alerts + deliveries} alerts were "
        f"journaled by the end of the storm; after {seconds:.1f} s all were decided but {left}.",
        ("what", "answered 200", "half within", "99 % within", "all within", "a second", "CPU"),
        tuple(rows),
    )


def bench(alerts: int = 10_000, deliveries: int = 1_000, connections: int = CONNECTIONS) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(Path(folder), alerts, deliveries, connections))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--alerts", type=int, default=10_000)
    parser.add_argument("--deliveries", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    given = parser.parse_args()
    result = bench(given.alerts, given.deliveries, given.connections)
    print(result.text(), result.about, sep="\n")


if __name__ == "__main__":
    main()
