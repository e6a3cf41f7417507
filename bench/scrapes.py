"""What a scrape costs, beside process-exporter and node_exporter, over processes and workers.

    python bench/scrapes.py                               # every size
    python bench/scrapes.py --processes 2000 --workers 64 # one

The processes are real ones that sleep. The peers are given the same workers to tell apart. All are
measured in turns within one run, so that whatever else the machine does falls on each alike. One
size is also scraped at the shipped interval: scrapes close to each other cost less than that, as
what is remembered need not be looked at again.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from programs import Cost, Program, exporter, free_port, peer, running
from results import Growth, Result, mebibytes, milliseconds, times

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
TYPICAL = (2000, 64)
TURNS = 3
TURN_SECONDS = 4.0
"""That one program is scraped in one turn, if the scrapes are not done before."""
TOGETHER = 10
OLD_SECONDS = 11.0
"""After which a process is no longer looked at as one that has just been started."""
INTERVAL = 5.0
"""Seconds between two scrapes, as shipped."""


@dataclass(frozen=True, slots=True)
class Found:
    """What scrapes cost by program, and what so many at once cost of our own: CPU, seconds."""

    costs: Mapping[str, Cost]
    together: tuple[float, float]
    at_interval: Mapping[str, float]
    """CPU seconds of one scrape at the shipped interval, by program; empty unless asked for."""


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
    return exporter(path, port)


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


def measure(processes: int, workers: int, scrapes: int, *, paced: int = 0) -> Found:
    """What a scrape of each program costs in such a crowd; `paced` ones at the interval too."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(crowd(processes, min(workers, processes), folder))
        ports = [free_port() for _ in range(3)]
        commands = {
            "trainwarden": own(folder, workers, ports[0]),
            "process-exporter": process_exporter(folder, workers, ports[1]),
            "node_exporter": node_exporter(ports[2]),
        }
        programs: dict[str, Program] = {
            name: stack.enter_context(running(command, port))
            for port, (name, command) in zip(ports, commands.items(), strict=True)
        }
        time.sleep(OLD_SECONDS)
        rounds = [
            {
                name: one.measure(scrapes // TURNS, seconds=TURN_SECONDS)
                for name, one in programs.items()
            }
            for _ in range(TURNS)
        ]
        together = programs["trainwarden"].measure_together(TOGETHER, TURNS)
        at_interval = _at_interval(programs, paced) if paced else {}
    costs = {name: _together([one[name] for one in rounds]) for name in programs}
    return Found(costs, together, at_interval)


def _at_interval(programs: Mapping[str, Program], scrapes: int) -> Mapping[str, float]:
    before = {name: one.cpu() for name, one in programs.items()}
    for _ in range(scrapes):
        time.sleep(INTERVAL)
        for one in programs.values():
            one.scrape()
    return {name: (one.cpu() - before[name]) / scrapes for name, one in programs.items()}


def _together(costs: list[Cost]) -> Cost:
    """The middle of each number over several turns; of those that are a worst, the worst."""
    middle = {
        field: sorted(getattr(cost, field) for cost in costs)[len(costs) // 2]
        for field in ("median", "cpu", "resident", "series")
    }
    worst = {field: max(getattr(cost, field) for cost in costs) for field in ("p99", "slowest")}
    return Cost(**middle, **worst)


def result(found: Mapping[tuple[int, int], Found]) -> Result:
    """What was found, by processes and workers."""
    rows = list[tuple[str, ...]]()
    for (processes, workers), one in found.items():
        ours = one.costs["trainwarden"]
        for name, cost in one.costs.items():
            at_interval = one.at_interval.get(name)
            rows.append(
                (
                    str(processes),
                    str(workers),
                    name,
                    milliseconds(cost.cpu),
                    "" if at_interval is None else milliseconds(at_interval),
                    milliseconds(cost.median),
                    milliseconds(cost.p99),
                    mebibytes(cost.resident),
                    str(cost.series),
                    times(cost.cpu, ours.cpu),
                )
            )
        cpu, seconds = one.together
        name = f"trainwarden, {TOGETHER} scrapes at once"
        slow = milliseconds(seconds)
        cells = (name, milliseconds(cpu), "", slow, "", "", "", times(cpu, ours.cpu))
        rows.append((str(processes), str(workers), *cells))
    return Result(
        "Scrapes",
        "CPU time of one scrape, one after the other and at the shipped interval of "
        f"{INTERVAL:g} s; the time until it is answered; memory in use; series shown. Asked for as "
        "Prometheus does, compressed; beside ours: CPU time.",
        (
            "processes",
            "workers",
            "program",
            "CPU",
            "at interval",
            "median",
            "p99",
            "resident",
            "series",
            "beside ours",
        ),
        tuple(rows),
        tuple(_growth(found)),
    )


def _growth(found: Mapping[tuple[int, int], Found]) -> Iterator[Growth]:
    _, usual = TYPICAL
    for what, sizes in (
        ("processes", [size for size in found if size[1] == usual]),
        ("workers", [size for size in found if size[0] == TYPICAL[0]]),
    ):
        if len(sizes) > 1:
            yield Growth(what.capitalize(), what, "ms of CPU a scrape", _points(found, what, sizes))


def _points(
    found: Mapping[tuple[int, int], Found], what: str, sizes: Sequence[tuple[int, int]]
) -> tuple[tuple[float, float], ...]:
    place = ("processes", "workers").index(what)
    return tuple((size[place], found[size].costs["trainwarden"].cpu * 1000) for size in sizes)


def bench(sizes: Sequence[tuple[int, int]] = SIZES, *, scrapes: int = 60) -> Result:
    """Measure all `sizes`, the typical one at the shipped interval too."""
    return result(
        {
            (processes, workers): measure(
                processes, workers, scrapes, paced=8 * ((processes, workers) == TYPICAL)
            )
            for processes, workers in sizes
        }
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--scrapes", type=int, default=100, help="of each program, at most")
    options = parser.parse_args()
    one = (options.processes, options.workers)
    print(bench(SIZES if one[0] is None else [one], scrapes=options.scrapes).text())


if __name__ == "__main__":
    main()
