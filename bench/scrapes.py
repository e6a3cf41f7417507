"""What a scrape costs, beside process-exporter and node_exporter, over processes and workers.

    python bench/scrapes.py                               # every size
    python bench/scrapes.py --processes 2000 --workers 64 # one

The processes are real ones that sleep. The peers are given the same workers to tell apart. All are
measured in turns within one run, so that whatever else the machine does falls on each alike.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import yaml

from programs import Cost, Program, free_port, peer, running

HERE = Path(__file__).resolve().parent
SIZES = (
    (0, 1),
    (500, 1),
    (500, 64),
    (2000, 1),
    (2000, 64),
    (2000, 512),
    (10_000, 64),
    (10_000, 512),
)
TURNS = 5


@contextmanager
def crowd(processes: int, workers: int, folder: Path) -> Iterator[None]:
    """So many processes that sleep, of which so many are workers."""
    program = folder / "crowd"
    if not program.exists():
        subprocess.run(["cc", "-O1", "-o", program, HERE / "crowd.c"], check=True)
    sleeping = subprocess.Popen(
        [program, str(processes), str(workers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    if (
        sleeping.stdin is None
        or sleeping.stdout is None
        or sleeping.stdout.readline() != b"ready\n"
    ):
        raise SystemExit("the machine allows no such crowd")
    try:
        yield
    finally:
        sleeping.stdin.close()
        sleeping.wait()
        sleeping.stdout.close()


def own(folder: Path, workers: int, port: int) -> list[str | Path]:
    """The command of the exporter, told of these workers."""
    names = [f"worker-{number}" for number in range(workers)]
    found = [{"name": name, "match": {"command": rf" {name}$"}} for name in names]
    path = folder / "exporter.yml"
    path.write_text(yaml.safe_dump({"runs": [{"name": "bench", "workers": found}]}))
    program = Path(sys.executable).with_name("trainwarden-exporter")
    return [program, "run", "--config.file", path, "--web.listen-address", f"127.0.0.1:{port}"]


def process_exporter(folder: Path, workers: int, port: int) -> list[str | Path]:
    """The command of process-exporter, told of the same."""
    names = [
        {"name": f"worker-{number}", "cmdline": [rf" worker-{number}$"]}
        for number in range(workers)
    ]
    path = folder / "process-exporter.yml"
    path.write_text(yaml.safe_dump({"process_names": names}))
    program, _ = peer("prometheus-process-exporter")
    return [program, "-config.path", path, "-web.listen-address", f"127.0.0.1:{port}"]


def node_exporter(port: int) -> list[str | Path]:
    program, _ = peer("prometheus-node-exporter")
    return [program, f"--web.listen-address=127.0.0.1:{port}"]


def measure(processes: int, workers: int, scrapes: int) -> Mapping[str, Cost]:
    """The cost of a scrape of each program by its name, in such a crowd."""
    workers = min(workers, processes) or workers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(crowd(processes, min(workers, processes), folder))
        ports = [free_port() for _ in range(3)]
        programs: dict[str, Program] = {
            name: stack.enter_context(running(command, port))
            for port, (name, command) in zip(
                ports,
                {
                    "trainwarden": own(folder, workers, ports[0]),
                    "process-exporter": process_exporter(folder, workers, ports[1]),
                    "node_exporter": node_exporter(ports[2]),
                }.items(),
                strict=True,
            )
        }
        rounds = [
            {name: one.measure(scrapes // TURNS) for name, one in programs.items()}
            for _ in range(TURNS)
        ]
    return {name: _together([one[name] for one in rounds]) for name in programs}


def _together(costs: list[Cost]) -> Cost:
    """The middle of each number over several turns; of those that are a worst, the worst."""
    middle = {
        field: sorted(getattr(cost, field) for cost in costs)[len(costs) // 2]
        for field in ("median", "cpu", "resident", "series")
    }
    worst = {field: max(getattr(cost, field) for cost in costs) for field in ("p99", "slowest")}
    return Cost(**middle, **worst)


def report(processes: int, workers: int, found: Mapping[str, Cost]) -> None:
    print(f"{processes} processes, {workers} workers")
    base = found["trainwarden"]
    for name, cost in found.items():
        ratio = cost.cpu / base.cpu if base.cpu else float("nan")
        print(
            f"  {name:18} {cost.cpu * 1000:8.1f} ms CPU  median {cost.median * 1000:7.1f} ms"
            f"  p99 {cost.p99 * 1000:7.1f} ms  {cost.resident / 2**20:6.1f} MiB"
            f"  {cost.series:6} series  x{ratio:.1f}"
        )


def main() -> None:
    """Measure and print; with --json one object for each size instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--scrapes", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = SIZES if options.processes is None else ((options.processes, options.workers),)
    for processes, workers in sizes:
        found = measure(processes, workers, options.scrapes)
        if options.json:
            costs = {name: asdict(cost) for name, cost in found.items()}
            print(json.dumps({"processes": processes, "workers": workers, "costs": costs}))
        else:
            report(processes, workers, found)


if __name__ == "__main__":
    main()
