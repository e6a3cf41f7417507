"""The replay of traces: small records of each kind, with known outcomes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from simulated_state import functions
from stack import Binaries
from traces import captures, faults, logs, series, steps
from traces.__main__ import NOWHERE, main, page, parts
from verdicts.engine import shipped_groups

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


def record(path: Path, values: list[tuple[float, float, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{value},{1.6e9 + at},{name}\n" for at, value, name in values)
    with gzip.open(path, "wt") as file:
        file.write(f"value,timestamp_anon,container_ip\n{rows}")


def write_series(folder: Path) -> None:
    """`idle` never uses its GPU; the memory of `grows` exceeds what is left."""
    moments = [57.0 * number for number in range(64)]
    duty = [(at, 0.0 if name == "idle" else 80.0, name) for at in moments for name in NAMES]
    memory = [(at, 0.9 if name == "grows" and at > 2000 else 0.4, name) for at, _, name in duty]
    record(folder / "series/pod_gpu_duty_cycle_anon.csv.gz", duty)
    record(
        folder / "series/pod_gpu_memory_used_bytes_anon.csv.gz",
        [(at, 3e10, name) for at, _, name in duty],
    )
    record(folder / "series/pod_memory_util_anon.csv.gz", memory)


NAMES = ("busy", "grows", "idle")


def test_series_are_judged_by_the_shipped_rules(tmp_path: Path, binaries: Binaries) -> None:
    write_series(tmp_path)
    found = dict(zip(NAMES, series.play(series.read(tmp_path), binaries.promtool), strict=True))
    fired = {
        name: {firing.labels["alertname"] for firing in one.fired} for name, one in found.items()
    }
    assert fired["busy"] == set()
    assert fired["idle"] == {"TrainingGpuIdle"}
    assert found["idle"].idle
    assert fired["grows"] == {"TrainingWorkerMemoryOverLimit", "TrainingMemoryFloor"}
    assert set(found["grows"].ordered) == {"restart_leaking_worker", "relieve_memory"}
    assert found["busy"].hours == pytest.approx(1.0, abs=0.01)
    about = series.table(tuple(found.values())).about
    assert "3 containers, 3 h of record: 2 orders" in about


def test_rules_that_select_nothing_of_the_record_are_left_out(tmp_path: Path) -> None:
    write_series(tmp_path)
    known = series.needed(shipped_groups(), ["trainwarden_gpu_utilization_ratio{}"])
    names = {rule.get("alert") for group in known for rule in group.body["rules"]}
    assert "TrainingGpuIdle" in names
    assert "TrainingHeartbeatMissed" not in names


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
    text = page(parts(tmp_path, None, None, 1))
    assert "## Logs" in text
    assert "## Step times" not in text


def test_without_traces_it_says_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["traces", "--folder", str(tmp_path)])
    assert main() == 2
    assert NOWHERE in capsys.readouterr().err
