"""A healthy run of 1,000 steps raises no alert; a stalled run raises exactly one.

The run is played against a clock of its own. What the exporter makes of it is the exporter's doing;
what the shipped rules, all that can say anything of it, make of that is promtool's.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.matching import WorkerKey, WorkerLiveness
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import progress_spec
from verdicts.engine import shipped_groups
from verdicts.needed import needed

STEPS = 1000
SCRAPE = 5.0
INTERVAL = 450.0
"""Seconds between two checkpoints, as configured."""
PHASES = ("starting", "saving", "evaluating", "updating_weights", "waiting_for_rollouts")
RUN = RunConfig.model_validate(
    {
        "name": "demo",
        "path": "/outputs",
        "workers": [{"name": "trainer", "role": "trainer", "match": {"command": "train.py"}}],
        "progress": {"total_steps": STEPS},
        "logs": [
            {
                "name": "trainer",
                "files": ["trainer.log"],
                "role": "trainer",
                "patterns": [
                    {"name": "step", "regex": r"Step (?P<step>\d+)", "phase": "training"},
                    *({"name": phase, "regex": phase, "phase": phase} for phase in PHASES),
                    {"name": "waited", "regex": "waited", "ends": "waiting_for_rollouts"},
                ],
            }
        ],
    }
)
BOX = 'instance="box:10977",job="trainwarden-exporter"'
TARGET = f'run="demo",{BOX}'
TRAINER = f'worker="trainer",role="trainer",{TARGET}'
Promtool = Callable[..., subprocess.CompletedProcess[str]]
Happening = tuple[float, str, int]
"""When, what, and at which step."""


def script(random_numbers: random.Random, *, stall: tuple[int, str] | None) -> Iterator[Happening]:
    """What happens in the run, which ends as it should unless it stalls at a step after a line."""
    now, step, resumed = 5.0, 0, False
    yield now, "start", 0
    now += 400  # compiling, for the first step
    while step < STEPS:
        pace = random_numbers.lognormvariate(0, 0.2)
        for line, seconds in (("waiting_for_rollouts", 1.5), ("waited", 0.7)):
            yield now, line, step
            if (step, line) == stall:
                yield now, "stall", step
                return
            now += seconds * pace
        step += 1
        yield now, "step", step
        yield now, "updating_weights", step
        now += 0.3
        if step % 250 == 0:
            yield now, "evaluating", step
            now += 200
        if step % 100 == 0:
            yield now, "saving", step
            now += 45
            yield now, "saved", step
        if step == 730 and not resumed:
            resumed = True
            yield now, "death", step
            now += 9
            step = 700
            yield now, "start", step
            now += 100
    yield now, "end", step


@dataclass
class Played:
    """The series of a run, sample by sample, and the moment it stalled."""

    series: dict[str, list[str]] = field(default_factory=dict)
    length: int = 0
    stalled: float = 0.0
    limit: float = 0.0

    def add(self, values: Mapping[str, float]) -> None:
        """Add the values of one scrape; no values stand for a lost scrape."""
        for name in values.keys() - self.series.keys():
            self.series[name] = ["_"] * self.length
        for name, samples in self.series.items():
            gone = "stale" if samples[-1:] not in ([], ["_"], ["stale"]) else "_"
            samples.append(f"{values[name]:g}" if name in values else gone)
        self.length += 1

    def input_series(self) -> list[dict[str, str]]:
        return [
            {"series": name, "values": " ".join(packed(samples))}
            for name, samples in self.series.items()
        ]


def packed(samples: Sequence[str]) -> Iterator[str]:
    """`samples` with repetitions in promtool's words."""
    for value, group in groupby(samples):
        times = len(list(group))
        if value in ("_", "stale"):
            yield " ".join([value] * times)
        else:
            yield value if times == 1 else f"{value}+0x{times - 1}"


class Box:
    """The run as an exporter sees it that is scraped now and then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.started: float | None = None
        self.finished = False
        self.checkpoint: float | None = None
        self.incomplete: float | None = None
        self.written = 0.0
        spec = progress_spec(RUN)
        self.tracker = ProgressTracker([spec], now=lambda: self.now, elapsed=lambda: self.now)
        watched = replace(spec, path=None)  # the run has no folder on this host
        # An evaluation was seen: so a silence without such a line is none.
        self.tracker.record_line(
            LineEvent("demo", "trainer", "trainer", "evaluating", {}, self.now)
        )
        self.progress = ProgressCollector([watched], self.tracker, liveness=self._lives)

    def _lives(self) -> tuple[WorkerLiveness, ...]:
        return (WorkerLiveness(WorkerKey("demo", "trainer"), self.started, self.finished),)

    def happen(self, when: float, what: str, step: int) -> None:
        self.now = when
        match what:
            case "start":
                self.started = when
            case "death" | "end":
                self.started, self.finished = None, what == "end"
            case "saved":
                self.checkpoint, self.incomplete = when, None
            case "saving":
                self.incomplete = when
        if what in (*PHASES, "waited", "step"):
            self.written = when
            groups = {"step": str(step)} if what == "step" else {}
            self.tracker.record_line(LineEvent("demo", "trainer", "trainer", what, groups, when))

    def scrape(self, now: float) -> dict[str, float]:
        self.now, gone = now, self.started is None and not self.finished
        checkpoint = f'checkpoint="default",{TARGET}'
        values: dict[str, float | None] = {
            f"trainwarden_worker_processes{{{TRAINER}}}": float(self.started is not None),
            f"trainwarden_worker_expected_processes{{{TRAINER}}}": 1.0,
            f"trainwarden_worker_finished{{{TRAINER}}}": float(self.finished),
            f"trainwarden_worker_start_timestamp_seconds{{{TRAINER}}}": self.started,
            f"trainwarden_worker_missing_processes{{{TRAINER}}}": 1.0 if gone else None,
            f"trainwarden_run_trainer_processes{{{TARGET}}}": float(self.started is not None),
            f"trainwarden_run_trainer_finished{{{TARGET}}}": float(self.finished),
            f"trainwarden_run_trainer_start_timestamp_seconds{{{TARGET}}}": self.started,
            f"trainwarden_run_newest_start_timestamp_seconds{{{TARGET}}}": self.started,
            f"trainwarden_run_workers_finished{{{TARGET}}}": 1.0 if self.finished else None,
            f"trainwarden_collector_success{{collector='workers',{BOX}}}": 1.0,
            f"trainwarden_checkpoint_seen_timestamp_seconds{{{checkpoint}}}": now,
            f"trainwarden_checkpoint_interval_seconds{{{checkpoint}}}": INTERVAL,
            f"trainwarden_checkpoint_timestamp_seconds{{{checkpoint}}}": self.checkpoint,
            f"trainwarden_checkpoint_incomplete_timestamp_seconds{{{checkpoint}}}": self.incomplete,
            f"trainwarden_checkpoint_saving{{{checkpoint}}}": float(self.incomplete is not None),
            f"trainwarden_log_seen_timestamp_seconds{{log='trainer',{TARGET}}}": now,
            f"trainwarden_log_last_write_timestamp_seconds{{log='trainer',{TARGET}}}": self.written,
            f"trainwarden_log_silence_limit_seconds{{log='trainer',{TARGET}}}": 1200.0,
        }
        for family in self.progress.collect():
            for sample in family.samples:
                more = "".join(f',{k}="{v}"' for k, v in sample.labels.items() if k != "run")
                values[f"{sample.name}{{{TARGET}{more}}}"] = sample.value
        phase = self.tracker.phase("demo")
        if phase is not None and phase[0] == "waiting_for_rollouts":
            name = "trainwarden_rollout_waiting_since_timestamp_seconds"
            values[f"{name}{{rollout='batches',{TARGET}}}"] = phase[1]
        return {name: value for name, value in values.items() if value is not None}


def play(seed: int, *, stall: tuple[int, str] | None = None, beyond: float = 600.0) -> Played:
    """The series of the run, and of `beyond` seconds after its end or its stall."""
    random_numbers = random.Random(seed)  # noqa: S311 - no secret depends on it
    box, played, now = Box(), Played(), 0.0

    def scrape() -> None:
        lost = random_numbers.random() < 1 / 200
        values = {} if lost else box.scrape(now)
        played.limit = values.get(
            f"trainwarden_training_stall_limit_seconds{{{TARGET}}}", played.limit
        )
        played.add(
            values | {'up{instance="box:10977",job="trainwarden-exporter"}': float(not lost)}
        )

    when = 0.0
    for when, what, step in script(random_numbers, stall=stall):
        while now < when:
            scrape()
            now += SCRAPE
        if what == "stall":
            played.stalled = when
        box.happen(when, what, step)
    while now < when + beyond:
        scrape()
        now += SCRAPE
    return played


def judged(played: Played, promtool: Promtool, folder: Path, *checks: Mapping[str, object]) -> str:
    """What promtool has to say of `checks`; nothing when they hold."""
    rules = folder / "rules.json"
    groups = [group.body for group in shipped_groups()]
    rules.write_text(json.dumps({"groups": needed(groups, played.series)}))
    suite = {
        "rule_files": [str(rules)],
        "evaluation_interval": "5s",
        "tests": [
            {
                "interval": "5s",
                "input_series": played.input_series(),
                "promql_expr_test": list(checks),
            }
        ],
    }
    path = folder / "run_test.yml"
    path.write_text(yaml.safe_dump(suite))
    result = promtool("test", "rules", path)
    return "" if result.returncode == 0 else result.stdout + result.stderr


FIRED = """
    count by (alertname) (
      count_over_time(ALERTS{alertstate="firing",alertname!="TrainingWatchdog"}[4h])
    )
"""


def test_a_healthy_run_raises_no_alert(promtool: Promtool, tmp_path: Path) -> None:
    played = play(1)
    end = f"{int(played.length * SCRAPE)}s"
    none = {"expr": FIRED, "eval_time": end, "exp_samples": []}
    # Otherwise nothing would have been judged.
    came = {
        "expr": f"max_over_time(trainwarden_training_step{{{TARGET}}}[1h])",
        "eval_time": end,
        "exp_samples": [{"labels": f"{{{TARGET}}}", "value": STEPS}],
    }
    resumed = {
        "expr": f"max_over_time(trainwarden_training_resumes_total{{{TARGET}}}[1h])",
        "eval_time": end,
        "exp_samples": [{"labels": f"{{{TARGET}}}", "value": 1}],
    }
    assert judged(played, promtool, tmp_path, none, came, resumed) == ""


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_run_that_stalls_at_a_random_step_raises_one_alert_in_time(
    seed: int, promtool: Promtool, tmp_path: Path
) -> None:
    step = random.Random(seed).randrange(40, 300)  # noqa: S311 - as above
    played = play(seed, stall=(step, "waited"), beyond=300)
    limit = played.stalled + played.limit
    assert 60 <= played.limit < 120
    checks = (
        {"expr": "ALERTS{severity='critical'}", "eval_time": f"{int(limit)}s", "exp_samples": []},
        {
            "expr": FIRED,
            "eval_time": f"{int(played.stalled + 299)}s",
            "exp_samples": [{"labels": '{alertname="TrainingStepStalled"}', "value": 2}],
        },
        {
            "expr": 'count(ALERTS{severity="critical",remediation="restart_stalled_run"})',
            "eval_time": f"{int(limit) + 15}s",
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
    )
    assert judged(played, promtool, tmp_path, *checks) == "", (step, played.stalled, played.limit)


def test_a_run_whose_batch_never_comes_raises_one_alert_in_time(
    promtool: Promtool, tmp_path: Path
) -> None:
    played = play(5, stall=(123, "waiting_for_rollouts"), beyond=300)
    checks = (
        {
            "expr": FIRED,
            "eval_time": f"{int(played.stalled + 299)}s",
            "exp_samples": [{"labels": '{alertname="TrainingWaitingForRollouts"}', "value": 1}],
        },
        {
            "expr": 'count(ALERTS{cause="slow",alertstate="firing"})',
            "eval_time": f"{int(played.stalled + 60)}s",
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
    )
    assert judged(played, promtool, tmp_path, *checks) == ""
