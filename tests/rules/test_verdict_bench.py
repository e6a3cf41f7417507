"""The verdict bench: a slice of it in each test run, and that its page is what it wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from stack import Binaries
from verdicts import arrivals, engine
from verdicts.alertmanager import Alertmanager
from verdicts.baselines import WATCHERS
from verdicts.bench import SHORTEST, batches, expected_length, judged, run
from verdicts.cases import FAULTS, Case, Due, Played, cases, simulate
from verdicts.engine import Firing, Group, rules_hash
from verdicts.faults import Expected, Fault
from verdicts.healthy import Night, keeps_state, nothing
from verdicts.judging import Finding, Judgement, judge
from verdicts.page import EXPORTER, GAP, SCRAPE, STALE, Page, UndeclaredError, Value, packed
from verdicts.report import shipped
from verdicts.run import Run
from verdicts.shapes import Shape
from verdicts.table_healthy import NIGHTS

PROJECT = Path(__file__).resolve().parents[2]
SEED = 1
SHORT = 200.0
"""Seconds for which a fault of the slice may be watched."""
SLICE = 10
SERVER = {"run": "r", "instance": "b:1"}


def chosen() -> tuple[Case, ...]:
    """Ten healthy runs and ten faults, of many kinds."""
    known = cases(SEED, healthy=len(NIGHTS), faulty=len(FAULTS))
    healthy = [one for one in known if not one.faulty and one.what.needs.get("compile") is None]
    quick = [one for one in known if isinstance(one.what, Fault) and one.what.watch <= SHORT]
    shorter = [
        replace(one, what=replace(one.what, length=900.0))  # type: ignore[arg-type] # a night
        for one in healthy[:: len(healthy) // SLICE][:SLICE]
    ]
    return (*shorter, *quick[:: len(quick) // SLICE][:SLICE])


def test_a_slice_of_the_bench_finds_all_faults_and_nothing_else(binaries: Binaries) -> None:
    slice_of_it = chosen()
    assert [one.faulty for one in slice_of_it].count(True) == SLICE
    assert len(slice_of_it) == 2 * SLICE
    done = [one for batch in batches(slice_of_it) for one in judged(batch, binaries.promtool)]
    assert len(done) == 2 * SLICE
    for judgement in done:
        assert judgement.good, (judgement.case.seed, judgement.findings, judgement.wrong)


def test_a_batch_that_cannot_be_judged_is_reported_and_ends_no_other(
    binaries: Binaries, tmp_path: Path
) -> None:
    """As when a query takes too long for promtool."""
    fails, works = sorted(chosen()[:2], key=expected_length)
    fails = replace(fails, what=replace(fails.what, length=60.0))  # type: ignore[arg-type]
    promtool, once = tmp_path / "promtool", tmp_path / "once"
    promtool.write_text(
        f'#!/bin/sh\nif mkdir "{once}" 2>/dev/null; then echo query timed out >&2; exit 1; fi\n'
        f'exec "{binaries.promtool}" "$@"\n'
    )
    promtool.chmod(0o755)

    done = list(run((fails, works), promtool, workers=1))

    assert sorted(len(batch.judgements) for batch in done) == [0, 1]
    (failed,) = [batch for batch in done if batch.error]
    assert "query timed out" in failed.error
    assert len(failed.cases) == 1


def ship(monkeypatch: pytest.MonkeyPatch, recorded: Mapping[str, str], reported: str) -> None:
    """These rules and no others: what is recorded every 15 s, and an alert every 5."""
    groups = (
        Group(
            5,
            {"name": "telling", "rules": [{"alert": "Reported", "expr": reported}]},
            records=False,
        ),
        Group(15, {"name": "recording", "rules": [recorded]}, records=True),
    )
    monkeypatch.setattr(engine, "shipped_groups", lambda: groups)


def test_what_is_recorded_seldom_is_held_between(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, {"record": "box:seen:sum", "expr": "sum(seen)"}, "box:seen:sum == 3")
    series = {"seen": [float(number) for number in range(12)], "up": [1.0] * 12}
    (firing,) = engine.evaluate(binaries.promtool, series, 60, tmp_path, gap=True)
    assert firing.moments == (15, 20, 25)


def test_what_could_not_be_recorded_in_a_gap_is_not_held_after_it(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, {"record": "box:up:away", "expr": "absent_over_time(up[8s])"}, "box:up:away")
    series: dict[str, list[Value]] = {"up": [1.0, 1.0, GAP, GAP, GAP, *[1.0] * 7]}
    assert not engine.evaluate(binaries.promtool, series, 60, tmp_path, gap=True)
    (held,) = engine.evaluate(binaries.promtool, series, 60, tmp_path)
    assert {20, 25, 30} <= set(held.moments)


def test_what_is_judged_seldom_fires_until_it_is_judged_again_and_the_on_call_is_paged_for_it(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = {"alert": "Reported", "expr": "seen > 0", "labels": {"severity": "critical"}}
    groups = (Group(15, {"name": "telling", "rules": [reported]}, records=False),)
    monkeypatch.setattr(engine, "shipped_groups", lambda: groups)
    series = {'seen{instance="b:1"}': [0.0, 0.0, *[1.0] * 5, *[0.0] * 20]}
    (firing,) = engine.evaluate(binaries.promtool, series, 120, tmp_path)
    assert firing.moments == (15, 20, 25, 30, 35, 40)
    assert "on-call" in {one.receiver for one in Alertmanager().notifications([firing])}


PROMTOOL_ONLY = {("TrainingWatchdog", "none")}
"""The alert that always fires has no fault; promtool tests it."""


def test_every_other_alert_has_a_fault_of_its_own() -> None:
    reported = {(one.alert, one.severity) for fault in FAULTS for one in fault.expected}
    assert shipped() - reported == PROMTOOL_ONLY


def test_what_may_stand_beside_a_fault_is_shipped_and_has_a_reason() -> None:
    names = {alert for alert, _ in shipped()}
    everything: tuple[Fault | Night, ...] = (*FAULTS, *NIGHTS)
    for what in everything:
        allowed = (
            what.beside if isinstance(what, Fault) else {**what.true_alerts, **what.muted_alerts}
        )
        assert {name.partition("/")[0] for name in allowed} <= names, what.name
        assert all(allowed.values()), what.name
        assert set(what.needs) <= {one.name for one in fields(Shape)}, what.name


def test_names_tell_cases_apart() -> None:
    names = [fault.name for fault in FAULTS] + [night.name for night in NIGHTS]
    assert len(set(names)) == len(names)


def test_the_intervals_are_as_shipped() -> None:
    shipped_config = yaml.safe_load((PROJECT / "rules" / "prometheus.yml").read_text())["global"]
    assert shipped_config["scrape_interval"] == shipped_config["evaluation_interval"] == "5s"
    assert SCRAPE == 5


def test_the_page_is_what_the_bench_wrote_for_these_rules() -> None:
    text = (PROJECT / "docs" / "verdicts.md").read_text()
    assert f"| rules, routes and inhibitions | `{rules_hash()}` |" in text, "make bench-verdicts"
    assert re.search(r"^\| seed \| \d+ \|$", text, re.MULTILINE)
    for kind, fewest in (("healthy", len(NIGHTS)), ("faulty", len(FAULTS))):
        found = re.search(rf"^\| {kind} runs \| (\d+) \|$", text, re.MULTILINE)
        assert found is not None
        assert int(found[1]) >= fewest
    for verdict in ("missed", "later than allowed"):
        assert f"| {verdict} | 0 |" in text, verdict
    for alert, severity in shipped() - PROMTOOL_ONLY:
        assert f"| [{alert}](runbooks/{alert}.md) | {severity} |" in text, alert


def test_faults_are_weighted_by_how_often_real_servers_had_them() -> None:
    """The counts are those of the record, each of an alert that is shipped and has a fault."""
    page = (PROJECT / "docs" / "traces.md").read_text()
    counted = {
        (group, name): (int(count), alert)
        for group, name, count, alert in re.findall(
            r"^\| ([^|]+) \| ([^|]+) \| (\d+) \|[^|]*\|[^|]*\|[^|]*\| \[(\w+)\]", page, re.MULTILINE
        )
    }
    assert counted == {
        kind: (count, arrivals.ALERTS[kind][0]) for kind, count in arrivals.COUNTS.items()
    }
    assert (
        f"{arrivals.FAULTS} faults of {arrivals.SERVERS} GPU servers in {arrivals.DAYS} days"
        in page
    )
    assert set(arrivals.ALERTS.values()) <= shipped()


def test_a_fault_that_is_missed_weighs_as_often_as_it_comes() -> None:
    def one(alert: str, severity: str, delay: float | None) -> Judgement:
        finding = Finding(Expected(alert, severity, 60), 60, delay)
        return Judgement(cases(1, healthy=0, faulty=1)[0], 0, (finding,), (), (), (), {})

    judged = [one(*kind, 10.0) for kind in arrivals.ALERTS.values()]
    assert " 100 % of these are found" in "".join(arrivals.section(judged))
    lost = [one("TrainingGpuMemoryErrors", "critical", None), *judged[1:]]
    (section,) = arrivals.section(lost)
    assert f" {100 * 30 / 56:.0f} % of these are found" in section
    assert "| 26 | 0.011 |" in section
    assert not arrivals.section([])


def test_an_exporter_that_restarts_knows_what_it_had_learned() -> None:
    night = next(one for one in NIGHTS if one.name == "the exporter restarts twice")
    kept: list[tuple[object, object]] = []

    def prepare(run: Run) -> None:
        before = run.box.tracker.states()
        keeps_state(run)
        kept.append((before, run.box.tracker.states()))

    case = Case(0, "seed", "torchtitan", replace(night, prepare=prepare, length=60.0))
    assert simulate(case).series
    ((before, after),) = kept
    assert before == after


def test_a_metric_nobody_declares_ends_the_bench() -> None:
    page = Page(EXPORTER, "box:1")
    with pytest.raises(UndeclaredError):
        page.put("trainwarden_worker_rss_bytes", 1.0, "run", "worker", "trainer")
    with pytest.raises(UndeclaredError):
        page.put("trainwarden_worker_processes", 1.0, "run")


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([1.0, 1.0, 1.0], "1+0x2"),
        ([5.0, 10.0, 15.0, 2.0], "5+5x2 2"),
        ([9.0, 7.0], "9-2x1"),
        ([GAP, GAP, 1.0, STALE, STALE, 1.0], "_x2 1 stale _x1 1"),
        ([0.0, GAP, STALE, STALE], "0 _x1 stale _x1"),
    ],
)
def test_samples_are_packed_in_the_words_of_promtool(
    samples: Sequence[float | str], words: str
) -> None:
    assert packed(samples) == words


def played(*, due: tuple[Due, ...] = (), beside: str = "") -> Played:
    """A case in which something is struck at 100 s, of 300 s."""
    fault = replace(FAULTS[0], beside={beside: "it follows"} if beside else {})
    case = Case(0, "seed", "generic", fault)
    return Played(case, {}, 300.0, 90.0, 100.0, due, frozenset({200.0}))


def firing(alert: str, *moments: float, severity: str = "critical", **labels: str) -> Firing:
    return Firing({"alertname": alert, "severity": severity, **SERVER, **labels}, moments)


DUE = Due(Expected("TrainingWorkerGone", "critical", 30), 30.0)


def test_an_alert_that_never_fires_is_missed_and_a_late_alert_is_late() -> None:
    manager = Alertmanager()
    assert judge(played(due=(DUE,)), (), manager).findings[0].delay is None
    late = judge(played(due=(DUE,)), [firing("TrainingWorkerGone", 135.0)], manager)
    assert late.findings[0].late
    assert not late.good
    in_time = judge(played(due=(DUE,)), [firing("TrainingWorkerGone", 125.0)], manager)
    assert in_time.good


def test_what_nobody_expects_is_false_unless_it_is_declared_and_after_the_fault() -> None:
    manager = Alertmanager()
    storm = firing("TrainingErrorStorm", 150.0, severity="warning")
    assert len(judge(played(), [storm], manager).wrong) == 1
    assert judge(played(beside="TrainingErrorStorm"), [storm], manager).wrong == ()
    early = firing("TrainingErrorStorm", 50.0, severity="warning")
    assert len(judge(played(beside="TrainingErrorStorm"), [early], manager).wrong) == 1


def test_an_order_is_never_right_on_a_healthy_run_and_a_muted_alert_only_while_it_is() -> None:
    night = Night("n", nothing, true_alerts={"TrainingStepStalled": "slow"})
    quiet = replace(night, true_alerts={}, muted_alerts={"TrainingStepStalled": "slow"})
    alert = firing("TrainingStepStalled", *map(float, range(100, 900, 5)))
    order = firing("TrainingStepStalled", 150.0, remediation="restart_stalled_run")
    manager = Alertmanager()

    def wrong(night: Night, *alerts: Firing) -> list[str]:
        made = replace(played(), case=Case(0, "seed", "generic", night), length=1000.0)
        return [one.labels["alertname"] for one in judge(made, alerts, manager).wrong]

    assert wrong(night, alert) == []
    assert wrong(night, order) == ["TrainingStepStalled"]
    assert wrong(quiet, alert) == ["TrainingStepStalled"]
    cause = firing("TrainingWorkerInterrupted", *alert.moments, severity="info", worker="w")
    assert wrong(quiet, alert, cause) == ["TrainingWorkerInterrupted"]


def test_trivial_watchers_see_pauses_and_exits() -> None:
    progress = 'trainwarden_training_progress_timestamp_seconds{run="r"}'
    processes = 'trainwarden_worker_processes{run="r"}'
    series: dict[str, list[Value]] = {
        progress: [0.0] * 200,
        processes: [GAP, 1.0, 1.0, STALE, 0.0, 1.0],
    }
    one = replace(played(), series=series)
    assert WATCHERS["alerts on any pause over ten minutes"](one) == 605.0
    assert WATCHERS["restarts whatever exits"](one) == 20.0
    assert WATCHERS["never alerts"](one) is None
    healthy = replace(one, series={progress: [5.0 * n for n in range(200)], processes: [1.0, 2.0]})
    assert [watcher(healthy) for watcher in WATCHERS.values()] == [None, None, None]


def test_a_batch_is_of_like_length_and_what_has_a_gap_is_apart() -> None:
    known = cases(SEED, healthy=2 * len(NIGHTS), faulty=len(FAULTS))
    made = batches(known)
    assert sorted(one.number for batch in made for one in batch) == list(range(len(known)))
    for batch in made:
        lengths = [expected_length(one) for one in batch]
        assert min(lengths) > SHORTEST * max(lengths)
        assert len({isinstance(one.what, Night) and one.what.gap for one in batch}) == 1


def test_what_fires_while_no_prometheus_runs_or_after_the_end_is_not_judged() -> None:
    moments = firing("TrainingErrorStorm", 200.0, 300.0, severity="warning")
    assert judge(played(), [moments], Alertmanager()).wrong == ()


def test_a_symptom_reaches_nobody_while_its_cause_fires() -> None:
    manager = Alertmanager()
    moments = tuple(float(moment) for moment in range(0, 900, 5))
    cause = firing("TrainingInferenceDown", *moments, remediation="restart_inference", worker="w")
    symptom = firing("TrainingStepStalled", *moments, remediation="restart_stalled_run")
    reported = manager.notifications([cause, symptom])
    assert {one.labels["alertname"] for one in reported} == {"TrainingInferenceDown"}
    assert {one.receiver for one in reported} == {"on-call", "trainwarden-remediator"}
    alone = manager.notifications([symptom])
    assert {one.labels["alertname"] for one in alone} == {"TrainingStepStalled"}


def test_the_on_call_is_paged_for_what_is_healed_within_two_minutes_not_at_all() -> None:
    moments = tuple(float(moment) for moment in range(0, 60, 5))
    gone = firing("TrainingWorkerGone", *moments, remediation="start_missing_worker", worker="w")
    assert {one.receiver for one in Alertmanager().notifications([gone])} == {
        "trainwarden-remediator"
    }
