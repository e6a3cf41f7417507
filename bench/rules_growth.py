"""What the shipped rules cost in a real Prometheus, over boxes.

    python bench/rules_growth.py [--boxes 1 100 1000]

Every box is a page of a real exporter with everything switched on, which one server hands out for
all of them; Prometheus takes each for a target of its own. It runs the shipped rules at their
shipped intervals and tells how long each group took.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text

from everything import everything
from inference_probes import answer_all
from programs import free_port, running
from results import Growth, Result, mebibytes, milliseconds

PROJECT = Path(__file__).resolve().parent.parent
sys.path.append(str(PROJECT / "deploy"))

import stack  # noqa: E402 - its folder comes first

BOXES = (1, 100, 1000)
WORKERS = 8
SETTLE_SECONDS = 25.0
"""For the first scrapes and rounds, in which there is little to judge."""
LOOKS, LOOK_SECONDS = 4, 5.0
COLUMNS = (
    "boxes",
    "series a box",
    "all rules",
    "of the interval",
    "slowest group",
    "it alone",
    "rounds missed",
    "CPU a second, scraping too",
    "resident",
    "resident a box",
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What so many boxes cost Prometheus.

    `series` of one box; `seconds` within one `interval` (seconds, the shortest of a group) of all
    groups together, and of the slowest; rounds that were `missed` because one took longer;
    `resident` bytes; `cpu` seconds a second.
    """

    series: float
    seconds: float
    slowest: str
    slowest_seconds: float
    missed: float
    interval: float
    resident: int
    cpu: float


def a_page() -> bytes:
    """The page of a box with everything switched on, compressed."""
    with everything(WORKERS) as box:
        box.program.scrape()
        time.sleep(SETTLE_SECONDS)
        return gzip.compress(box.program.scrape())


def hand_out(page: bytes, pipe: Connection) -> None:
    """Answer every request with `page`, until killed; the port goes through `pipe`."""
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0\r\n"
        f"Content-Encoding: gzip\r\nContent-Length: {len(page)}\r\n\r\n"
    ).encode()
    answer_all(lambda _: head + page, pipe)


@contextmanager
def handing_out(page: bytes) -> Iterator[int]:
    """The port at which every box is to be had."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hand_out, args=(page, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def configuration(boxes: int, port: int) -> Mapping[str, object]:
    """The shipped one, with so many boxes for the one."""
    shipped = yaml.safe_load((PROJECT / "rules/prometheus.yml").read_text(encoding="utf-8"))
    job = {
        "job_name": "trainwarden-exporter",
        "static_configs": [{"targets": [f"box-{number}" for number in range(boxes)]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "instance"},
            {"target_label": "__address__", "replacement": f"127.0.0.1:{port}"},
        ],
    }
    files = [str(PROJECT / "rules" / name) for name in shipped["rule_files"]]
    return {"global": shipped["global"], "rule_files": files, "scrape_configs": [job]}


def measure(boxes: int, port: int) -> Evaluation:
    """Let Prometheus watch so many boxes for a while."""
    with tempfile.TemporaryDirectory() as name:
        folder, own_port = Path(name), free_port()
        config = folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(configuration(boxes, port)))
        command: list[str | Path] = [
            stack.find_binaries().prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own_port}",
            "--log.level=error",
        ]
        with running(command, own_port) as program:
            time.sleep(SETTLE_SECONDS)
            before, began, looks = program.cpu(), time.monotonic(), []
            for _ in range(LOOKS):
                time.sleep(LOOK_SECONDS)
                looks.append(_look(program.scrape().decode().removesuffix("# EOF\n")))
            cpu = (program.cpu() - before) / (time.monotonic() - began)
            resident = program.resident()
    last = looks[-1]
    interval = min(last["interval"].values())
    took = {
        group: statistics.mean(look["took"][group] for look in looks) * interval / every
        for group, every in last["interval"].items()
    }
    slowest = max(took, key=lambda group: took[group])
    series, missed = last["series"][""] / boxes, sum(last["missed"].values())
    return Evaluation(
        series, sum(took.values()), slowest, took[slowest], missed, interval, resident, cpu
    )


def _look(page: str) -> Mapping[str, Mapping[str, float]]:
    """What Prometheus says of itself, by rule group where it tells each."""
    names = {
        "prometheus_rule_group_last_duration_seconds": "took",
        "prometheus_rule_group_interval_seconds": "interval",
        "prometheus_rule_group_iterations_missed_total": "missed",
        "prometheus_tsdb_head_series": "series",
    }
    found: dict[str, dict[str, float]] = {name: {} for name in names.values()}
    for family in parse_text(page):
        for sample in family.samples:
            if sample.name in names:
                group = sample.labels.get("rule_group", "").rpartition(";")[2]
                found[names[sample.name]][group] = sample.value
    return found


def bench(boxes: Sequence[int] = BOXES) -> Result:
    """Measure each number of boxes."""
    with handing_out(a_page()) as port:
        found = {count: measure(count, port) for count in boxes}
    points = tuple((float(count), one.seconds * 1000) for count, one in found.items())
    interval = next(iter(found.values())).interval
    return Result(
        "Rules",
        f"The time that evaluating all shipped rules takes within one interval of {interval:g} s, "
        "in a real Prometheus that scrapes the boxes too; groups with longer intervals by their "
        "share. Series and memory count what Prometheus keeps for itself and for the rules.",
        COLUMNS,
        tuple(
            (
                str(count),
                f"{one.series:.0f}",
                milliseconds(one.seconds),
                f"{one.seconds / one.interval:.1%}",
                one.slowest,
                milliseconds(one.slowest_seconds),
                f"{one.missed:.0f}",
                milliseconds(one.cpu),
                mebibytes(one.resident),
                mebibytes(one.resident / count),
            )
            for count, one in found.items()
        ),
        (Growth("Rules", "boxes", "ms an interval", points),) if len(points) > 1 else (),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--boxes", type=int, nargs="+", default=BOXES)
    print(bench(parser.parse_args().boxes).text())


if __name__ == "__main__":
    main()
