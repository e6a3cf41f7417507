"""After a run's normal end no alert fires or waits to fire, for the longest delay of all rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from verdicts.cases import Case, simulate
from verdicts.engine import seconds, shipped_groups
from verdicts.needed import needed
from verdicts.page import SCRAPE, packed
from verdicts.table_healthy import NIGHTS

EVERY = 60
"""Seconds between two evaluations: what waits to fire is seen by the next one, too."""
SETTLES = 600
"""Seconds after the end from which on all is quiet."""
LATEST_END = 3600
ENDS = {
    "finishes": ("trl",),
    "finishes and its servers sleep": ("verl",),
    "is a search that ends": ("optuna",),
}
"""Runs of the model that end, and some frameworks of each."""
Promtool = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("name", "framework"),
    [(name, framework) for name, frameworks in ENDS.items() for framework in frameworks],
)
def test_no_alert_is_pending_or_firing(
    name: str,
    framework: str,
    promtool: Promtool,
    tmp_path: Path,
    alerts: list[dict[str, Any]],
) -> None:
    longest = max(seconds(rule.get("for", "0s")) for rule in alerts)
    (night,) = (one for one in NIGHTS if one.name == name)
    length = LATEST_END + SETTLES + longest
    played = simulate(Case(0, f"end/{name}", framework, replace(night, length=length)))
    (finished,) = (
        samples
        for series, samples in played.series.items()
        if series.startswith("trainwarden_run_trainer_finished{")
    )
    end = finished.index(1.0) * SCRAPE
    assert 0 < end <= LATEST_END
    assert set(finished[int(end / SCRAPE) + 1 :]) == {1.0}
    quiet = int(length - end - SETTLES)
    assert quiet >= longest
    checks = [
        {
            "expr": "count by (alertname) (count_over_time("
            f'ALERTS{{alertname!="TrainingWatchdog"}}[{quiet}s]))',
            "eval_time": f"{length}s",
            "exp_samples": [],
        },
        {  # otherwise nothing would have been judged
            "expr": f'count(count_over_time(ALERTS{{alertname="TrainingWatchdog"}}[{quiet}s]))',
            "eval_time": f"{length}s",
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
    ]
    rules = tmp_path / "rules.json"
    groups = [group.body for group in shipped_groups()]
    rules.write_text(json.dumps({"groups": needed(groups, played.series)}))
    suite = {
        "rule_files": [str(rules)],
        "evaluation_interval": f"{EVERY}s",
        "tests": [
            {
                "interval": f"{SCRAPE:g}s",
                "input_series": [
                    {"series": series, "values": packed(samples)}
                    for series, samples in played.series.items()
                ],
                "promql_expr_test": checks,
            }
        ],
    }
    path = tmp_path / "end_test.json"
    path.write_text(json.dumps(suite))
    result = promtool("test", "rules", path)
    assert result.returncode == 0, result.stdout + result.stderr
