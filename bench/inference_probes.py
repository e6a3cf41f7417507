"""Measures the cost of probing many inference servers, some of them hung, and checks for leaks.

    python bench/inference_probes.py                     # 200 servers, 50 of them hanging
    python bench/inference_probes.py --rounds 1000       # longer, to see leaks

One other process serves all servers that answer, with answers as long as vLLM's; for hanging
servers only the kernel accepts connections. Intervals and timeouts are shorter than in life, so
that many rounds fit into little time; the cost of a round does not depend on them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import multiprocessing
import resource
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from results import Result
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.health_model import HealthLimits
from trainwarden_exporter.inference.http_client import HttpClient
from trainwarden_exporter.inference.probe_loop import ProbeLoop
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.target import ServerHealth, ServerTarget

INTERVAL = 0.5
TIMEOUT = 0.4
LIFE_INTERVAL = 5.0
"""Seconds between rounds in life, to which the share of a core is scaled."""

BUCKETS = 600
"""Unused histogram lines on a page of vLLM 0.32; 68 kB in all."""


def page(tokens: int) -> bytes:
    """A page of metrics as long as vLLM's, on which `tokens` have been generated."""
    labels = 'engine="0",model_name="tiny"'
    buckets = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{number}.0",quantile="none"}} 4.0\n'
        for number in range(BUCKETS)
    )
    return (
        f"{buckets}vllm:num_requests_running{{{labels}}} 4.0\n"
        f"vllm:num_requests_waiting{{{labels}}} 0.0\n"
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.25\n"
        f"vllm:generation_tokens_total{{{labels}}} {tokens}.0\n"
        f"vllm:iteration_tokens_total_count{{{labels}}} {tokens}.0\n"
    ).encode()


def serve(pipe: Connection) -> None:
    """Answer as a vLLM that works, until killed; the port goes through `pipe`."""
    pages = itertools.cycle([response(page(tokens)) for tokens in range(100)])
    nothing = response(b"")
    answer_all(lambda head: next(pages) if head.startswith(b"GET /metrics") else nothing, pipe)


def answer_all(answer: Callable[[bytes], bytes], pipe: Connection) -> None:
    """Give each request, by its head, its whole response; the port goes through `pipe`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def response(body: bytes) -> bytes:
    """A whole HTTP response."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def target(name: str, url: str) -> ServerTarget:
    """A vLLM server that is asked more often than a configuration allows."""
    config = ServerConfig.model_validate({"name": name, "engine": "vllm", "url": url})
    config = config.model_copy(update={"interval": INTERVAL, "timeout": TIMEOUT})
    return ServerTarget("bench", name, "vllm", url, config)


def build(one: ServerTarget) -> Prober:
    """Its prober; completions are left out, for they are asked for once in an idle minute."""
    engine = build_engine(one.engine, one.config, one.url or "")
    return Prober(
        one, engine, HttpClient(one.config.timeout), limits=HealthLimits(probes_completions=False)
    )


def open_files() -> int:
    """How many files and sockets this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@dataclass(frozen=True)
class Count:
    """What this process has used and holds."""

    cpu: float
    wall: float
    probes: int
    files: int
    tasks: int
    resident: int


def count(probes: ProbeLoop, seen: Mapping[ServerTarget, ServerHealth | None]) -> Count:
    """Count it now."""
    loop = probes._loop  # noqa: SLF001 - its tasks are what is counted
    return Count(
        time.process_time(),
        time.monotonic(),
        sum(one.probes for one in seen.values() if one is not None),
        open_files(),
        len(asyncio.all_tasks(loop)) if loop is not None else 0,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def measure(targets: Iterable[ServerTarget], good: int, rounds: int) -> tuple[tuple[str, str], ...]:
    """Probe until each server that serves was asked `rounds` times; what that took, in rows."""
    before = open_files()
    probes = ProbeLoop(build)
    probes.set_targets(targets)
    probes.start()
    time.sleep(2)
    slowest = 0.0
    begin = now = count(probes, probes.latest(wait_seconds=0))
    while now.probes - begin.probes < rounds * good:
        time.sleep(0.5)
        began = time.perf_counter()
        seen = probes.latest(wait_seconds=0)
        slowest = max(slowest, time.perf_counter() - began)
        now = count(probes, seen)
        if now.wall - begin.wall > 3600:  # noqa: PLR2004 - an hour is enough
            break
    latest = min(one.timestamp for one in seen.values() if one is not None)
    found = report(begin, now, len(seen), time.time() - latest, slowest)
    probes.close()
    return (*found, ("open files without probes", f"{before} before, {open_files()} after"))


def report(
    begin: Count, end: Count, servers: int, oldest: float, slowest: float
) -> tuple[tuple[str, str], ...]:
    """What lies between two counts, in rows."""
    probes = end.probes - begin.probes
    per_probe = (end.cpu - begin.cpu) / probes
    share = per_probe * servers / LIFE_INTERVAL
    return (
        ("probes of single servers", f"{probes} in {end.wall - begin.wall:.0f} s"),
        ("CPU per server and round", f"{per_probe * 1000:.2f} ms"),
        ("CPU per round of all", f"{per_probe * servers * 1000:.0f} ms"),
        (f"share of a core, each {LIFE_INTERVAL:g} s", f"{share:.1%}"),
        ("oldest sighting at the end", f"{oldest:.2f} s (interval {INTERVAL:g} s)"),
        ("longest look of a scrape", f"{slowest * 1000:.2f} ms"),
        ("open files", f"{begin.files}, then {end.files}"),
        ("tasks", f"{begin.tasks}, then {end.tasks}"),
        ("most memory", f"{begin.resident} MiB, then {end.resident} MiB"),
    )


def bench(servers: int = 200, hanging: int = 50, rounds: int = 20) -> Result:
    """Measure `servers` servers, `hanging` of them hung."""
    logging.getLogger("trainwarden_exporter").setLevel(logging.ERROR)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=[there], daemon=True)
    process.start()
    url = f"http://127.0.0.1:{here.recv()}"
    with socket.socket() as silence:
        silence.bind(("127.0.0.1", 0))
        silence.listen(4096)
        silent = f"http://127.0.0.1:{silence.getsockname()[1]}"
        good = servers - hanging
        targets = [target(f"good-{number}", url) for number in range(good)]
        targets += [target(f"hung-{number}", silent) for number in range(hanging)]
        rows = measure(targets, good, rounds)
    process.kill()
    process.join()
    return Result(
        "Probes of servers that hang",
        f"{servers} inference servers, {hanging} of them hang after they accept a connection, "
        f"asked every {INTERVAL:g} s by the probes of the exporter, in a process of its own.",
        ("what", "found"),
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--hanging", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(bench(options.servers, options.hanging, options.rounds).text())


if __name__ == "__main__":
    main()
