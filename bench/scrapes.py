"""What a scrape costs, beside process-exporter and node_exporter, over processes and workers.

    python bench/scrapes.py                               # every size
    python bench/scrapes.py --processes 2000 --workers 64 # one

The processes are real ones that sleep most of the time; workers have hundreds of mappings and some
threads. The peers are started as they come, with smaps and threads looked at, and are given the
same workers to distinguish; at one size process-exporter is also measured with the configuration
that its package shows, which distinguishes all processes by their names. All are measured in
turns within one run, so that whatever else the machine does falls on each alike. One size is also
scraped at the shipped interval: scrapes close to each other cost less than that, as what is
remembered need not be looked at again.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from peers import NEWEST, PeerMissing, peer
from programs import Cost, Program, exporter, free_port, running
from results import Growth, Result, mebibytes, milliseconds, times

HERE = Path(__file__).resolve().parent
SIZES = tuple(itertools.product((0, 500, 2000, 10_000), (1, 64, 512)))
TYPICAL = (2000, 64)
MAPPINGS, THREADS = 300, 8
"""Of each worker: fewer than of a training process (a thousand mappings, some dozen threads)."""
TURNS = 3
TURN_SECONDS = 1.5
"""That one program is scraped in one turn, if the scrapes are not done before."""
TOGETHER, TIMES = 10, 9
"""Scrapes at once, and how often that is done: the first time they connect as well."""
EVERY = "every process by its name"
AT_ONCE = f"trainwarden, {TOGETHER} scrapes at once"
OLD_SECONDS = 11.0
"""Age after which a process no longer counts as new."""
INTERVAL = 5.0
"""Seconds between two scrapes, as shipped."""
PACED, PACED_BEFORE = 12, 2
"""Scrapes at that interval, and those before them that are not counted: what is looked at again
only after some time is then looked at as often as in the long run."""
EVERY_PROCESS = ({"name": "{{.Comm}}", "cmdline": [".+"]},)
"""The example of process-exporter's package (all.yaml), and of its README."""

Command = Callable[[int], list[str | Path]]
"""Of a program that is to listen on that port."""


@dataclass(frozen=True, slots=True)
class Found:
    """What scrapes cost by program, and what so many at once cost of our own: CPU, seconds.

    `missing` are sentences on peers that could not be had.
    """

    costs: Mapping[str, Cost]
    together: tuple[float, float]
    at_interval: Mapping[str, float]
    """CPU seconds of one scrape at the shipped interval, by program; empty unless asked for."""
    missing: tuple[str, ...] = ()


@contextmanager
def crowd(processes: int, workers: int, folder: Path) -> Iterator[None]:
    """A crowd of mostly idle processes, some of them workers."""
    program = folder / "crowd"
    if not program.exists():
        subprocess.run(["cc", "-O1", "-pthread", "-o", program, HERE / "crowd.c"], check=True)
    numbers = map(str, (processes, workers, MAPPINGS, THREADS))
    sleeping = subprocess.Popen([program, *numbers], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
    """The command of the exporter, configured with these workers."""
    names = [f"worker-{number}" for number in range(workers)]
    found = [{"name": name, "match": {"command": rf" {name}$"}} for name in names]
    path = folder / "exporter.yml"
    path.write_text(yaml.safe_dump({"runs": [{"name": "bench", "workers": found}]}))
    return exporter(path, port)


def process_exporter(
    folder: Path, groups: Sequence[Mapping[str, object]], suite: str | None, port: int
) -> list[str | Path]:
    """The command of process-exporter of that suite, with this grouping."""
    path = folder / f"process-exporter-{port}.yml"
    path.write_text(yaml.safe_dump({"process_names": list(groups)}))
    program, _ = peer("prometheus-process-exporter", suite)
    return [program, "-config.path", path, "-web.listen-address", f"127.0.0.1:{port}"]


def node_exporter(port: int) -> list[str | Path]:
    program, _ = peer("prometheus-node-exporter")
    return [program, f"--web.listen-address=127.0.0.1:{port}"]


def commands(folder: Path, workers: int, *, typical: bool) -> tuple[dict[str, Command], list[str]]:
    """What is measured, by its name in the tables, and what could not be had."""
    same = [
        {"name": f"worker-{number}", "cmdline": [rf" worker-{number}$"]}
        for number in range(workers)
    ]
    found: dict[str, Command] = {"trainwarden": partial(own, folder, workers)}
    missing = []
    for suite in (NEWEST, None) if typical else (NEWEST,):
        try:
            _, version = peer("prometheus-process-exporter", suite)
        except PeerMissing as error:
            missing.append(str(error))
            continue
        name = f"process-exporter {version}"
        found[name] = partial(process_exporter, folder, same, suite)
        if typical:
            every = partial(process_exporter, folder, EVERY_PROCESS, suite)
            found[f"{name}, {EVERY}"] = every
    try:
        peer("prometheus-node-exporter")
        found["node_exporter"] = node_exporter
    except PeerMissing as error:
        missing.append(str(error))
    return found, missing


def measure(processes: int, workers: int, scrapes: int, *, paced: int = 0) -> Found:
    """What a scrape of each program costs in such a crowd; `paced` ones at the interval too."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(crowd(processes, min(workers, processes), folder))
        found, missing = commands(folder, workers, typical=(processes, workers) == TYPICAL)
        ports = {name: free_port() for name in found}
        programs: dict[str, Program] = {
            name: stack.enter_context(running(command(ports[name]), ports[name]))
            for name, command in found.items()
        }
        time.sleep(OLD_SECONDS)
        rounds = [
            {
                name: one.measure(scrapes // TURNS, warm=1, seconds=TURN_SECONDS)
                for name, one in programs.items()
            }
            for _ in range(TURNS)
        ]
        together = programs["trainwarden"].measure_together(TOGETHER, TIMES)
        at_interval = _at_interval(programs, paced) if paced else {}
    costs = {name: _together([one[name] for one in rounds]) for name in programs}
    return Found(costs, together, at_interval, tuple(missing))


def _at_interval(programs: Mapping[str, Program], scrapes: int) -> Mapping[str, float]:
    def scrape(count: int) -> None:
        for _ in range(count):
            time.sleep(INTERVAL)
            for one in programs.values():
                one.scrape()

    scrape(PACED_BEFORE)
    before = {name: one.cpu() for name, one in programs.items()}
    scrape(scrapes)
    return {name: (one.cpu() - before[name]) / scrapes for name, one in programs.items()}


def _together(costs: list[Cost]) -> Cost:
    """The median of each number over several rounds; the maximum for worst cases."""
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
        ours, our_interval = one.costs["trainwarden"], one.at_interval.get("trainwarden")
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
                    times(at_interval or cost.cpu, our_interval or ours.cpu),
                )
            )
        cpu, seconds = one.together
        slow = milliseconds(seconds)
        cells = (AT_ONCE, milliseconds(cpu), "", slow, "", "", "", times(cpu, ours.cpu))
        rows.append((str(processes), str(workers), *cells))
    return Result(
        "Scrapes",
        "CPU time of one scrape, one after the other and at the shipped interval of "
        f"{INTERVAL:g} s; the time until it is answered; memory in use; series shown. Asked for as "
        "Prometheus does, compressed; beside ours: CPU time, at the interval where that was "
        f"measured. Each worker has {MAPPINGS} mappings and {THREADS} threads, all other processes "
        "few and one; workers and each tenth of the others run once a second, and one of them "
        "starts a process that ends. The peers run with the flags "
        "they come with (process-exporter reads smaps and threads). process-exporter has "
        "the same configuration as ours: the workers, each as one group, which spares it most "
        "work; where the table says so, what its package configures: every process, by its name."
        + "".join(f" {one}." for one in sorted({one for f in found.values() for one in f.missing})),
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
                processes, workers, scrapes, paced=PACED * ((processes, workers) == TYPICAL)
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
