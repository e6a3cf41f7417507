"""What the shipped rules cost in a real Prometheus, over boxes.

    python bench/rules_growth.py [--boxes 1 100 1000] [--costliest 20]

Every box is the page of a real exporter with everything switched on (boxes.py); Prometheus takes
each for a target of its own. It is first given what the boxes had shown before, as far back as the
rules look (ten minutes at most), for a rule over minutes costs little in the first of them. Then
it runs the shipped rules at their shipped intervals and reports the duration of each group.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text

from boxes import HISTORY, LONGEST, SERVERS, WORKERS, a_box, handing_out, windows
from peers import NEWEST
from programs import Program, free_port, running
from results import Growth, Result, mebibytes, milliseconds

PROJECT = Path(__file__).resolve().parent.parent
sys.path.append(str(PROJECT / "deploy"))

import stack  # noqa: E402 - its folder comes first

BOXES = (1, 100, 1000)
HISTORY_SECONDS = 300.0
"""Within which Prometheus must have taken what was before."""
HISTORY_SECONDS_A_BOX = 0.06
"""Over which the boxes are asked for it."""
SETTLE_SECONDS = 20.0
"""For the first scrapes, in which there is little to judge."""
ROUND_SECONDS = 70.0
"""Within which every group has been evaluated once: longer than the longest interval."""
SCRAPING_SECONDS = 30.0
"""For which Prometheus scrapes and does not judge."""
LOOKS, LOOK_SECONDS = 5, 12.0
"""Together as long as the longest interval: each group adds its rounds to all times."""
COLUMNS = (
    "boxes",
    "series a box",
    "all rules",
    "of the interval",
    "their CPU",
    "slowest group",
    "it alone",
    "rounds missed",
    "alerts a box",
    "CPU a second, scraping alone",
    "resident",
    "resident a box",
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What so many boxes cost Prometheus.

    `series` of one box; `seconds` within one `interval` (seconds, the shortest of a group) of all
    groups together, and of the slowest; rounds that were `missed` because one took longer; `alerts`
    pending or firing, of one box; `resident` bytes; CPU seconds of `scraping` a second, and CPU
    seconds that the rules add within an interval.
    """

    series: float
    seconds: float
    slowest: str
    slowest_seconds: float
    missed: float
    alerts: float
    interval: float
    resident: int
    scraping: float
    cpu: float


def shipped() -> tuple[Mapping[str, Any], list[Path]]:
    """The shipped configuration of Prometheus, and the files of rules that it names."""
    folder = PROJECT / "rules"
    content = yaml.safe_load((folder / "prometheus.yml").read_text(encoding="utf-8"))
    return content, [file for name in content["rule_files"] for file in sorted(folder.glob(name))]


def expressions(files: Sequence[Path]) -> Iterator[str]:
    """All that the rules ask at each evaluation."""
    for file in files:
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            yield from (rule["expr"] for rule in group["rules"])


def configuration(boxes: int, port: int, path: str, **scraping: object) -> dict[str, object]:
    """A Prometheus that scrapes `count` hosts."""
    job = {
        "job_name": "trainwarden-exporter",
        "metrics_path": path,
        "static_configs": [{"targets": [f"box-{number}" for number in range(boxes)]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "instance"},
            {"target_label": "__address__", "replacement": f"127.0.0.1:{port}"},
        ],
        **scraping,
    }
    return {"scrape_configs": [job]}


@contextmanager
def prometheus(boxes: int, port: int) -> Iterator[tuple[Program, Callable[[], None]]]:
    """A Prometheus that scrapes so many boxes and knows what they had shown before.

    With what makes it judge them too.
    """
    content, files = shipped()
    scraping = {"global": content["global"], **configuration(boxes, port, "/metrics")}
    pace = f"{max(5, round(boxes * HISTORY_SECONDS_A_BOX))}s"
    before = configuration(boxes, port, HISTORY, scrape_interval=pace, scrape_timeout=pace)

    def take(content: Mapping[str, object]) -> None:
        config.write_text(yaml.safe_dump(content))
        program.reload()

    with tempfile.TemporaryDirectory() as name:
        folder, own_port = Path(name), free_port()
        config = folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(before))
        command: list[str | Path] = [
            stack.find_binaries().prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own_port}",
            "--log.level=error",
        ]
        with running(command, own_port, ready="/-/ready") as program:
            deadline = time.monotonic() + HISTORY_SECONDS
            while _value(program, "count(scrape_samples_post_metric_relabeling > 0)") < boxes:
                if time.monotonic() > deadline:
                    raise SystemExit(f"Prometheus did not take the history of {boxes} boxes")
                time.sleep(2)
            take(scraping)
            yield program, lambda: take({**scraping, "rule_files": list(map(str, files))})


def _value(program: Program, query: str) -> float:
    answer = json.loads(program.scrape(f"/api/v1/query?query={quote(query)}"))
    return sum(float(one["value"][1]) for one in answer["data"]["result"])


def prometheus_version() -> str:
    """Of the Prometheus that evaluates."""
    return ".".join(map(str, stack.version(stack.find_binaries().prometheus)))


def measure(program: Program, judge: Callable[[], None], boxes: int) -> Evaluation:
    """What a Prometheus that watches so many boxes spends on judging them."""
    time.sleep(SETTLE_SECONDS)
    before, began = program.cpu(), time.monotonic()
    time.sleep(SCRAPING_SECONDS)
    scraping = (program.cpu() - before) / (time.monotonic() - began)
    judge()
    time.sleep(ROUND_SECONDS)
    before, began, looks = program.cpu(), time.monotonic(), [_look(program)]
    for _ in range(LOOKS):
        time.sleep(LOOK_SECONDS)
        looks.append(_look(program))
    passed = time.monotonic() - began
    first, last = looks[0], looks[-1]
    interval = min(last["interval"].values())
    took = {
        # of one whose first round is not over there is a zero
        group: statistics.mean([took for look in looks if (took := look["took"][group])] or [0.0])
        * interval
        / every
        for group, every in last["interval"].items()
    }
    slowest = max(took, key=lambda group: took[group])
    return Evaluation(
        series=last["series"][""] / boxes,
        seconds=(last["all"][""] - first["all"][""]) * interval / passed,
        slowest=slowest,
        slowest_seconds=took[slowest],
        missed=sum(last["missed"].values()) - sum(first["missed"].values()),
        alerts=_value(program, 'count(ALERTS{alertname!="TrainingWatchdog"})') / boxes,
        interval=interval,
        resident=program.resident(),
        scraping=scraping,
        cpu=((program.cpu() - before) / passed - scraping) * interval,
    )


def costliest(program: Program, count: int) -> str:
    """The rules that last took longest, by the time within one shortest interval."""
    groups = json.loads(program.scrape("/api/v1/rules"))["data"]["groups"]
    shortest = min(group["interval"] for group in groups)
    took = [
        (rule["evaluationTime"] * shortest / group["interval"], group["name"], rule["name"])
        for group in groups
        for rule in group["rules"]
    ]
    rows = sorted(took, reverse=True)[:count]
    return "\n".join(f"  {milliseconds(one):>10}  {group}  {name}" for one, group, name in rows)


def _look(program: Program) -> Mapping[str, Mapping[str, float]]:
    """The own metrics of Prometheus, by rule group where available."""
    page = program.scrape().decode().removesuffix("# EOF\n")
    names = {
        "prometheus_rule_group_duration_seconds_sum": "all",
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


def bench(boxes: Sequence[int] = BOXES, *, tell: int = 0) -> Result:
    """Measure each number of hosts; print the costliest rules."""
    found = dict[int, Evaluation]()
    looked_back = windows(expressions(shipped()[1]))
    with handing_out(a_box(), looked_back) as port:
        for count in boxes:
            with prometheus(count, port) as (program, judge):
                found[count] = measure(program, judge, count)
                if tell:
                    print(f"{count} boxes\n{costliest(program, tell)}", flush=True)
    points = tuple((float(count), one.cpu * 1000) for count, one in found.items())
    interval = next(iter(found.values())).interval
    version = prometheus_version()
    growth = (Growth(f"Rules in {version}", "boxes", "ms of CPU an interval", points),)
    return Result(
        f"Rules in Prometheus {version}",
        f"The time that evaluating all shipped rules takes within one interval of {interval:g} s, "
        "in a real Prometheus that scrapes the boxes too; groups with longer intervals by their "
        "share; and the CPU time that it adds to that of scraping, which shows growth: the "
        "more boxes are scraped meanwhile, the longer a rule waits for a core. Each box is a run "
        f"of {WORKERS} workers on eight GPUs with {SERVERS} inference "
        "servers, which gets on; what it had shown before is there as far back as the rules look, "
        f"but for no more than {LONGEST / 60:g} min. Series and memory count what Prometheus keeps "
        "for itself and for the rules.",
        COLUMNS,
        tuple(
            (
                str(count),
                f"{one.series:.0f}",
                milliseconds(one.seconds),
                f"{one.seconds / one.interval:.1%}",
                milliseconds(one.cpu),
                one.slowest,
                milliseconds(one.slowest_seconds),
                f"{one.missed:.0f}",
                f"{one.alerts:.1f}",
                milliseconds(one.scraping),
                mebibytes(one.resident),
                mebibytes(one.resident / count),
            )
            for count, one in found.items()
        ),
        growth if len(points) > 1 else (),
    )


def bench_newest() -> Result:
    """The same in the newest Prometheus of the distribution; for a process of its own."""
    os.environ["TRAINWARDEN_STACK_SUITE"] = NEWEST
    return bench()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--boxes", type=int, nargs="+", default=BOXES)
    parser.add_argument("--costliest", type=int, default=0, help="so many rules that take longest")
    options = parser.parse_args()
    print(bench(options.boxes, tell=options.costliest).text())


if __name__ == "__main__":
    main()
