"""The replay of traces: small records of each kind, with known outcomes."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from simulated_state import functions
from stack import Binaries
from traces import captures, faults, logs, ranks, series, series_page, series_rules, steps
from traces.__main__ import NOWHERE, main, page, parts
from verdicts.engine import Firing, shipped_groups
from verdicts.page import GAP

ITERATION = (
    " iteration {step:8d}/    1000 | elapsed time per iteration (ms): 1613.7 | lm loss: 8.0E+00 |\n"
)


def megatron_log(path: Path, steps: int, end: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(ITERATION.format(step=step) for step in range(10, steps + 1, 10))
    path.write_text(f"training ...\n{lines}{end}")


@pytest.mark.parametrize(
    ("end", "read"),
    [
        ("", "stops"),
        ("slurmstepd: error: *** JOB 18 ON r6 CANCELLED AT 2021-05-23T08:29:53 ***\n", "cancelled"),
        (
            "slurmstepd: error: *** JOB 18 ON r6 CANCELLED AT 2021-05-23 DUE TO TIME LIMIT ***\n",
            "time limit",
        ),
        ("[after training is done] datetime: 2021-05-23 08:29:53 \n", "finished"),
        ('Traceback (most recent call last):\n  File "a"\nRuntimeError: CUDA error\n', "failed"),
    ],
)
def test_a_log_is_read_as_a_reader_does(tmp_path: Path, end: str, read: str) -> None:
    path = tmp_path / "logs" / "run.out"
    megatron_log(path, 90, end)
    reader = logs.by_reader(path.read_text())
    assert (reader.step, reader.total, reader.end) == (90, 1000, read)
    assert logs.by_autopsy(path) == ("megatron", reader)
    assert "1 of 1 logs" in logs.table([path]).about


def test_a_log_that_is_read_otherwise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.out"
    megatron_log(path, 90, "")
    monkeypatch.setattr(logs, "by_reader", lambda _: logs.Reading(80, 1000, "stops"))
    table = logs.table([path])
    assert "0 of 1 logs" in table.about
    assert table.rows[0][-1] == "**no**"


def test_a_pause_among_real_steps_is_counted_against_the_limits_before_it() -> None:
    times = (1.0,) * 40 + (30.0,) + (1.0,) * 5
    calm = steps.replay([steps.Steps("calm", (1.0,) * 46)], 20.0)
    assert (calm.steps, calm.warned, calm.stalled, calm.ordered) == (46, 0, 0, 0)
    paused = steps.replay([steps.Steps("paused", times)], 20.0)
    assert (paused.warned, paused.stalled, paused.ordered) == (1, 1, 0)
    long = steps.replay([steps.Steps("long", (*times[:40], 100.0, 1.0))], 20.0)
    assert (long.ordered, round(long.nearest, 1)) == (1, 1.1)


def test_step_times_are_those_of_the_slowest_worker_and_of_each(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    rows = "".join(f"{n},{n % 2},25,{n // 2 * 10 + 1},{100 + 50 * (n % 2)}\n" for n in range(6))
    (folder / "job_7_norm.csv").write_text(f",worker,gpu,time,batch_time_norm\n{rows}")
    (folder / "coefficient_variation.csv").write_text(",0,1,2\njob_00,0.0,0.5,0.0\n")
    found = {one.name: one.times for one in steps.read(tmp_path)}
    assert found["job_7_norm"] == (1.0, 1.0, 1.0)
    assert set(found) == {"job_7_norm", "job_7_norm, worker 0", "job_7_norm, worker 1", "job_00"}
    assert found["job_00"][1] == pytest.approx(1.77)


SLOW = ranks.Job("job", {0: [1.0] * 1800, 1: [1.0] * 1800, 2: [1.3] * 1800}, [1.3] * 1800)
TURNS = ranks.Job("turns", {0: [1.0, 1.3, 1.0] * 600, 1: [1.3, 1.0, 1.0] * 600}, [1.3] * 1800)


def test_the_slow_rank_of_a_job_is_named_by_the_shipped_rule(binaries: Binaries) -> None:
    slow, turns = (ranks.replay(job, binaries.promtool) for job in (SLOW, TURNS))
    assert slow.named.keys() == slow.must == {2}
    assert 600 < slow.named[2] < 800
    assert slow.must_not == {0, 1}
    assert turns.must_not == {0, 1}
    assert not turns.named.keys() | turns.must
    assert "Of 1 slow ranks, 1 were named" in ranks.table([slow, turns]).about
    assert "of 4 ranks that are not slow, 0 were" in ranks.table([slow, turns]).about
    missed = replace(slow, named={0: 700.0})
    assert "Of 1 slow ranks, 0 were named" in ranks.table([missed]).about
    assert "of 2 ranks that are not slow, 1 were" in ranks.table([missed]).about


def test_a_rank_that_is_slow_for_some_minutes_is_neither() -> None:
    work = [1.3 if 600 <= step < 1000 else 1.0 for step in range(1800)]
    job = ranks.Job("job", {0: [1.0] * 1800, 1: [1.0] * 1800, 2: work}, [1.3] * 1800)
    assert ranks.late_share(job, 2, ranks.NAMED_SECONDS) < ranks.MUST
    assert ranks.late_share(job, 2, ranks.DOUBT_SECONDS) > ranks.MAY_NOT


def test_one_step_in_ten_stands_for_the_ten(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    rows = "".join(f"{n},{n % 2},25,{n // 2 * 10 + 1},{100 + 50 * (n % 2)}\n" for n in range(6))
    (tmp_path / "steps/job_7_norm.csv").write_text(f",worker,gpu,time,batch_time_norm\n{rows}")
    one, ten = ranks.read(tmp_path)
    assert one.ranks.keys() == {0, 1}
    assert (one.steps[0], ten.steps[0]) == (1.0, 10.0)
    assert one.ranks[0][0] == pytest.approx(2 / 3)
    assert ranks.LEAST_SECONDS <= sum(one.steps) <= ranks.LEAST_SECONDS + 20


def test_of_operations_only_the_computing_of_a_rank_counts(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"rank": rank, "step": step, "optype": kind, "start_ts": start, "duration": seconds}
        for rank in (0, 4)
        for step in (16, 21)
        for kind, start, seconds in (
            ("forward-compute", 0.0, 1.0),
            ("forward-recv", 1.0, 5.0),
            ("backward-compute", 6.0, 2.0 + rank),
        )
    ]
    (tmp_path / "ranks").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "ranks/trace-A.parquet")
    (job,) = ranks.read(tmp_path)
    assert (job.name, job.steps[:2]) == ("trace-A", [12.0, 12.0])
    assert {rank: work[:2] for rank, work in job.ranks.items()} == {0: [3.0] * 2, 4: [7.0] * 2}


def record(path: Path, values: list[tuple[float, float, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{value},{1.6e9 + at},{name}\n" for at, value, name in values)
    with gzip.open(path, "wt") as file:
        file.write(f"value,timestamp_anon,container_ip\n{rows}")


def write_series(folder: Path) -> None:
    """`idle` never uses its GPU; the memory of `grows` exceeds what is left."""
    moments = [57.0 * number for number in range(64)]
    duty = [(at, 0.0 if name == "idle" else 80.0, name) for at in moments for name in NAMES]
    memory = [(at, 0.95 if name == "grows" and at > 2000 else 0.4, name) for at, _, name in duty]
    record(folder / "series/pod_gpu_duty_cycle_anon.csv.gz", duty)
    record(
        folder / "series/pod_gpu_memory_used_bytes_anon.csv.gz",
        [(at, 3e10, name) for at, _, name in duty],
    )
    record(folder / "series/pod_memory_util_anon.csv.gz", memory)


NAMES = ("busy", "grows", "idle")


def test_series_are_judged_by_the_shipped_rules_and_leaving_out_some_changes_nothing(
    tmp_path: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(tmp_path)
    recorded = series.read(tmp_path)
    size = series.card(recorded)
    assert size == 32 * 2**30
    found = series.play(recorded, size, binaries.promtool)
    fired = {
        name: {alarm.kind for alarm in one.alarms} for name, one in zip(NAMES, found, strict=True)
    }
    assert fired["busy"] == set()
    assert fired["idle"] == {("TrainingGpuIdle", "warning")}
    assert fired["grows"] == {
        ("TrainingWorkerMemoryOverLimit", "warning"),
        ("TrainingWorkerMemoryOverLimit", "critical"),
        ("TrainingMemoryFloor", "critical"),
    }
    ordered = {one.labels["remediation"] for one in found[1].alarms if one.ordered}
    assert ordered == {"restart_leaking_worker", "relieve_memory"}
    table = series_page.table(found)
    assert (
        "3 containers, 3 h of GPUs, 3 h of memory: 2 orders to the remediator on 1 of them"
        in table.about
    )
    rows = {row[0].partition("]")[0][1:] + "/" + row[1]: row for row in table.rows}
    assert rows["TrainingGpuIdle/warning"][2:5] == ("3", "1", "1")
    assert rows["TrainingWorkerLeak/warning"][3:5] == ("0", "0")

    monkeypatch.setattr(series, "passes", lambda groups, every: [(groups, every)])
    monkeypatch.setattr(series, "that_may_fire", lambda groups, _: groups)
    assert series.play(recorded, size, binaries.promtool) == found


def test_only_rules_that_the_record_can_contradict_are_judged(tmp_path: Path) -> None:
    write_series(tmp_path)
    recorded = series.read(tmp_path)
    every = {
        name: samples
        for one in recorded
        for name, samples in series.Host(one, 8e10).scrapes().items()
    }
    groups = series_rules.that_may_fire(shipped_groups(), every)
    names = {rule.get("alert") for group in groups for rule in group.body["rules"]}
    assert {"TrainingGpuIdle", "TrainingWorkerLeak", "TrainingMemoryFloor"} <= names
    recorded_names = {name for group in groups for name in re.findall(r"\w+:\w+:", str(group.body))}
    assert recorded_names <= {"run:trainwarden_run_removed:"}  # no run of a record is removed
    assert not {"TrainingHeartbeatMissed", "TrainingWorkerGone", "TrainingReboot"} & names
    for own, read in series_rules.passes(groups, every):
        hosts = {name.partition('instance="')[2].partition(":")[0] for name in read}
        assert hosts == ({"c1"} if own[0].interval == 5 else {"c0", "c1", "c2"})


def test_what_stands_still_is_held_and_a_hole_is_none_of_it() -> None:
    moments = (0.0, 57.0, 5000.0, 5057.0)
    container = series.Container("c", {"memory": [(at, at / 1e4) for at in moments]})
    found = series.Host(container, 0.0).scrapes()
    resident = next(samples for name, samples in found.items() if "worker_memory_bytes" in name)
    started = next(samples for name, samples in found.items() if "worker_start_time" in name)
    assert len(resident) == 1012
    assert resident[:12] == [0.0] * 12
    assert set(resident[12:133]) == {round(57e-4 * series.SIZE)}
    assert set(resident[133:1000]) == {GAP}
    assert resident[1000:] == [round(0.5 * series.SIZE)] * 12
    assert (started[0], started[-1]) == (-series.WARM, 5000.0)
    assert container.hours("memory") == pytest.approx(2 * 57 / 3600)


def test_a_container_of_one_sample_is_played() -> None:
    found = series.Host(series.Container("c", {"memory": [(14.0, 0.5)]}), 0.0).scrapes()
    resident = next(samples for name, samples in found.items() if "worker_memory_bytes" in name)
    assert resident == [GAP, GAP, GAP, round(0.5 * series.SIZE)]


def test_a_limit_is_there_once_it_is_known() -> None:
    container = series.Container("c", {"memory": [(57.0 * at, 0.6) for at in range(101)]})
    assert container.limit == pytest.approx(0.8)
    found = series.Host(container, 0.0).scrapes()
    limits = next(samples for name, samples in found.items() if "memory_limit_bytes" in name)
    assert limits.count(GAP) * 5 == pytest.approx(container.set_up, abs=5)
    assert limits[-1] == pytest.approx(0.8 * series.SIZE)


def test_an_alert_that_fires_again_is_another_alarm() -> None:
    labels = {"alertname": "A", "severity": "warning", "instance": "c:10977"}
    fired = [Firing(labels, (0.0, 5.0, 60.0, 65.0, 70.0, 400.0))]
    found = series_rules.alarms(fired, {"c": 100.0})["c"]
    assert [(one.start, one.end) for one in found] == [(0.0, 10.0), (60.0, 75.0)]


@pytest.mark.parametrize(
    ("values", "came"),
    [
        ([0.5, 0.6, 0.1], "started again within four hours"),
        ([0.5, 0.6, 0.8], "passed the limit within four hours"),
        ([0.5, 0.6, 0.6], "stayed under the limit"),
    ],
)
def test_what_came_of_an_alarm_is_read_from_the_record(values: list[float], came: str) -> None:
    memory = [(600.0 * at, 0.5) for at in range(20)]
    values += [values[-1]] * 25
    memory += [(12_000 + 600.0 * at, value) for at, value in enumerate(values)]
    container = series.Container("c", {"memory": memory})
    labels = {"alertname": "TrainingWorkerLeak", "severity": "warning"}
    alarm = series_rules.Alarm(labels, 12_000.0, 12_060.0, paged=True, ordered=False)
    assert series_page.came_of(container, alarm) == came


def test_arrivals_are_counted_by_class_with_their_repair(tmp_path: Path) -> None:
    kind = {"Level": "Hardware Failure", "Class": "GPU", "Desc": "xid"}
    events = [
        {"node_id": "a", "event_time": 1.0, "event_type": "fault_start", "fault_type": kind},
        {"node_id": "a", "event_time": 2.0, "event_type": "fault_end", "fault_type": kind},
        {"node_id": "b", "event_time": 10.0, "event_type": "fault_start", "fault_type": kind},
    ]
    path = tmp_path / "faults.json"
    path.write_text(json.dumps(events))
    table = faults.table(faults.read(path, 10))
    assert table.rows == (("GPU", "xid", "2", "0.02", "0.063", "24.0 h", ""),)
    assert "0 (0 %) are of kinds that an alert is for" in table.about
    named = path.read_text().replace('"xid"', '"GPU xid Error"')
    path.write_text(named)
    (row,) = faults.table(faults.read(path, 10)).rows
    assert row[-1] == "[TrainingGpuXid](runbooks/TrainingGpuXid.md)"


CARD = """\
# nvidia_gpu_exporter GPU capture
# idle :: query-gpu (csv, what the exporter parses)
# $ nvidia-smi --query-gpu=… --format=csv
####
index, uuid, name, pci.bus_id, driver_version, compute_mode, clocks_event_reasons.active, \
memory.total [MiB], memory.reserved [MiB], memory.used [MiB], power.draw [W], temperature.memory
0, GPU-0, A card, 00000000:09:00.0, 590.48.01, Default, 0x0000000000000004, 81559 MiB, \
479 MiB, 0 MiB, 71.50 W, N/A


# idle :: query-compute-apps (per-process)
# $ nvidia-smi --query-compute-apps=… --format=csv
pid, used_gpu_memory [MiB]
12, 370 MiB


# capabilities :: nvml-symbols
{symbols}
"""
THEIRS = """\
# TYPE nvidia_smi_memory_total_bytes gauge
nvidia_smi_memory_total_bytes{uuid="0"} 8.5520809984e+10
nvidia_smi_power_draw_watts{uuid="0"} 7.15
nvidia_smi_clocks_event_reasons_sw_power_cap{uuid="0"} 1
"""


def test_a_captured_card_is_compared_with_what_another_exporter_made_of_it(tmp_path: Path) -> None:
    symbols = "\n".join(sorted(functions() - {"nvmlDeviceGetPersistenceMode"}))
    (tmp_path / "linux__a-card__590.txt").write_text(CARD.format(symbols=symbols))
    metrics = tmp_path / "linux__a-card__590__idle.metrics"
    metrics.write_text(THEIRS)
    capture = captures.read(metrics)
    assert (capture.name, capture.state, capture.processes) == ("a-card, driver 590", "idle", 1)
    compared = captures.compare(capture)
    assert "power_draw_watts: 71.5 here, 7.15 there" in compared.different
    assert not [one for one in compared.different if one.startswith(("memory_total", "processes"))]
    # a function that the library does not have is no failure, and its value is missing
    assert not [one for one in compared.different if one.startswith(("read_fail", "persistence"))]
    assert captures.table([compared]).rows[0][-1] == str(len(functions()) - 1)


def test_what_is_there_is_on_the_page(tmp_path: Path) -> None:
    megatron_log(tmp_path / "logs" / "run.out", 90, "")
    text = page(parts(tmp_path, 1))
    assert "## Logs" in text
    assert "## Step times" not in text


def test_without_traces_it_says_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["traces", "--folder", str(tmp_path)])
    assert main() == 2
    assert NOWHERE in capsys.readouterr().err
