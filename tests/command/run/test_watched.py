"""The exporter shows what `trainwarden run` runs, without a configuration."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from running_runs import Runs, wait_for
from trainwarden_exporter.__main__ import main
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.processes import exit_status
from trainwarden_exporter.scrape import scraper

TRAIN = """
import itertools, sys, time
for step in itertools.count(1):
    print(f"step {step}/1000 loss {1 / step}", flush=True)
    time.sleep(0.05)
    if code := open(sys.argv[1]).read():
        break
if code != "0":
    print("ValueError: bad thing", flush=True)
sys.exit(int(code))
"""
TIMEOUT = 180.0
BETWEEN_SCRAPES = 0.5
"""Seconds; each looks at all processes of the host."""


async def scrape(exporter: Exporter) -> Mapping[tuple[str, str], float]:
    """Values by name and worker (or run)."""
    await exporter.refresh_runs()
    outcomes = await exporter.scraper.scrape(60.0)
    return {
        (sample.name.removeprefix("trainwarden_"), sample.labels.get("status", "")): sample.value
        for family in scraper.families(outcomes)
        for sample in family.samples
        if sample.labels.get("run") == "r"
    }


@pytest.fixture
def exporter(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    # as on a kernel before 6.15, and without the right to trace
    monkeypatch.setattr(exit_status, "_pidfd_info", lambda _: None)
    monkeypatch.setattr(exit_status, "read_zombie_status", lambda *_: None)
    return Exporter(None)


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (3, "failed")])
async def test_a_run_appears_within_one_scrape_and_leaves_as_it_ended(
    runs: Runs, exporter: Exporter, code: int, state: str, tmp_path: Path
) -> None:
    assert await scrape(exporter) == {}
    gate = tmp_path / "gate"
    gate.touch()
    process = runs.piped(sys.executable, "-c", TRAIN, str(gate))
    runs.wait_until(state="running")
    seen = await scrape(exporter)
    assert seen["worker_processes", ""] == 1
    assert seen["worker_expected_processes", ""] == 1
    deadline = time.monotonic() + TIMEOUT
    # logs are followed beside the scrapes
    while seen.get(("training_step", ""), 0) < 3 or ("log_value", "") not in seen:
        assert time.monotonic() < deadline
        await asyncio.sleep(BETWEEN_SCRAPES)
        seen = await scrape(exporter)
    assert 0 < seen["log_value", ""] <= 1
    assert seen["training_total_steps", ""] == 1000

    gate.write_text(str(code))
    process.communicate()
    seen = await scrape(exporter)
    assert seen["worker_exits_total", str(code)] == 1
    assert seen["worker_last_exit_code", ""] == code
    assert seen["worker_finished", ""] == (code == 0)
    assert (("worker_missing_processes", "") in seen) == (code != 0)
    assert runs.announced()["state"] == state

    # an exporter that starts afterwards shows the same
    seen = await scrape(Exporter(None))
    assert seen["worker_finished", ""] == (code == 0)
    if code:
        assert seen["worker_missing_processes", ""] == 1
        assert ("worker_unconfirmed_missing_processes", "") not in seen


async def test_a_limit_of_the_command_line_is_shown(runs: Runs, exporter: Exporter) -> None:
    options = ("--name", "r", "--memory-limit", "2GiB", "--age-limit", "12h")
    runs.piped("sleep", "1000", options=options)
    runs.wait_until(state="running")
    seen = await scrape(exporter)
    assert seen["worker_memory_limit_bytes", ""] == 2 << 30
    assert seen["worker_age_limit_seconds", ""] == 12 * 3600


async def test_checkpoints_of_any_kind_are_found_in_their_folder(
    runs: Runs, exporter: Exporter, tmp_path: Path
) -> None:
    folder = tmp_path / "out [1]"
    for name in ("epoch=1-step=20.ckpt", "events.out.tfevents.17.host.99", "tmp-checkpoint-40"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "checkpoint-30").mkdir()
    (folder / "checkpoint-30" / "model").write_bytes(b"x")
    an_hour_ago = time.time() - 3600
    for path in (*folder.iterdir(), folder / "checkpoint-30" / "model"):
        os.utime(path, (an_hour_ago, an_hour_ago))
    options = ("--name", "r", "--checkpoints", str(folder))
    runs.piped("sleep", "1000", options=options)
    runs.wait_until(state="running")
    deadline = time.monotonic() + TIMEOUT
    while ("checkpoint_step", "") not in (seen := await scrape(exporter)):
        assert time.monotonic() < deadline, sorted(seen)
        await asyncio.sleep(BETWEEN_SCRAPES)
    assert seen["checkpoint_step", ""] == 30


async def test_a_restarted_process_is_the_same_worker(runs: Runs, exporter: Exporter) -> None:
    runs.piped("sleep", "1000")
    runs.wait_until(state="running")
    assert (await scrape(exporter))["worker_processes", ""] == 1
    assert runs.restart()["ok"]
    seen = await scrape(exporter)
    assert seen["worker_processes", ""] == 1
    assert seen["worker_restarts_total", ""] == 1
    assert seen["worker_exits_total", "SIGTERM"] == 1


async def test_a_run_that_its_operator_stopped_leaves(runs: Runs, exporter: Exporter) -> None:
    process = runs.piped("sleep", "1000")
    runs.wait_until(state="running")
    assert await scrape(exporter) != {}
    process.terminate()
    process.communicate()
    assert await scrape(exporter) == {}


RESUME = """
import itertools, pathlib, sys, time
flag = pathlib.Path(sys.argv[1])
if flag.exists():
    print("loading step_20.pt", flush=True)
    time.sleep(1000)
flag.touch()
for step in itertools.count(1):
    print(f"step {step} loss {1 / step}", flush=True)
    time.sleep(0.02)
"""


async def test_the_last_steps_before_a_restart_are_not_those_of_the_new_process(
    runs: Runs, exporter: Exporter, tmp_path: Path
) -> None:
    """They are read together with what the new process prints first."""
    runs.piped(sys.executable, "-c", RESUME, str(tmp_path / "flag"))
    runs.wait_until(state="running")
    deadline = time.monotonic() + TIMEOUT
    seen = await scrape(exporter)
    while seen.get(("training_step", ""), 0) < 50:
        assert time.monotonic() < deadline
        await asyncio.sleep(BETWEEN_SCRAPES)
        seen = await scrape(exporter)
    assert runs.restart()["ok"]
    wait_for(lambda: b"loading" in runs.log())
    while seen.get(("log_read_bytes_total", "")) != len(runs.log()):
        assert time.monotonic() < deadline
        await asyncio.sleep(BETWEEN_SCRAPES)
        seen = await scrape(exporter)
    started = seen["worker_start_timestamp_seconds", ""]
    assert seen.get(("training_last_step_timestamp_seconds", ""), 0.0) < started
    assert seen["training_resumes_total", ""] == 0


SAVES = """
import itertools, pathlib, sys, time
saved = pathlib.Path(sys.argv[1])
first = int(saved.read_text() or 0)
print(f"loading step_{first}.pt", flush=True)
time.sleep(7)
for step in itertools.count(first + 1):
    print(f"step {step} loss {1 / step}", flush=True)
    if step % 20 == 0:
        saved.write_text(str(step))
    time.sleep(0.02)
"""


async def test_each_resume_is_counted_once(runs: Runs, exporter: Exporter, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.touch()
    runs.piped(sys.executable, "-c", SAVES, str(saved))
    runs.wait_until(state="running")
    for resumes in range(3):
        first, started = int(saved.read_text() or 0), runs.announced()["starts"]
        assert started == resumes + 1
        seen = await scrape(exporter)
        deadline = time.monotonic() + TIMEOUT
        while seen.get(("training_step", ""), 0) <= first + 25:
            assert time.monotonic() < deadline
            await asyncio.sleep(BETWEEN_SCRAPES)
            seen = await scrape(exporter)
        assert seen["training_resumes_total", ""] == resumes
        assert runs.restart()["ok"]


async def test_errors_from_before_the_first_scrape_are_counted_but_not_those_of_an_earlier_run(
    runs: Runs, exporter: Exporter
) -> None:
    fails = 'print("torch.OutOfMemoryError: CUDA out of memory", flush=True); '
    runs.piped(sys.executable, "-c", f"{fails} raise SystemExit(1)").communicate()
    runs.piped(sys.executable, "-c", f"{2 * fails} import time; time.sleep(600)")
    wait_for(lambda: runs.log().count(b"CUDA out of memory") == 3)
    seen = await scrape(exporter)
    deadline = time.monotonic() + TIMEOUT
    while ("log_error_lines_total", "") not in seen:
        assert time.monotonic() < deadline
        await asyncio.sleep(BETWEEN_SCRAPES)
        seen = await scrape(exporter)
    assert seen["log_error_lines_total", ""] == 2


async def test_steps_from_before_the_first_scrape_are_those_of_the_run(
    runs: Runs, exporter: Exporter
) -> None:
    steps = 'for step in range(30): print(f"step {step} loss 0.5", flush=True)'
    runs.piped(sys.executable, "-c", f"{steps}\nimport time; time.sleep(600)")
    wait_for(lambda: b"step 29" in runs.log())
    deadline = time.monotonic() + TIMEOUT
    seen = await scrape(exporter)
    while seen.get(("log_read_bytes_total", "")) != len(runs.log()):
        assert time.monotonic() < deadline
        await asyncio.sleep(BETWEEN_SCRAPES)
        seen = await scrape(exporter)
    seen = await scrape(exporter)  # its start is known as well
    assert seen["training_step", ""] == 29
    started = seen["worker_start_timestamp_seconds", ""]
    assert 0 <= seen["training_last_step_timestamp_seconds", ""] - started < 60
    assert seen["training_resumes_total", ""] == 0


def test_discover_leaves_out_what_is_watched_already(
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    script, out = tmp_path / "train.py", tmp_path / "outputs"
    out.mkdir()
    script.write_text("import time\nwhile True: time.sleep(1)\n")
    command = [sys.executable, str(script), f"--out={out}"]
    unannounced = subprocess.Popen(command)
    try:
        assert main(["discover", str(out)]) == 0
    finally:
        unannounced.kill()
        unannounced.wait()
    assert str(out) in capsys.readouterr().out
    runs.piped(*command)
    runs.wait_until(state="running")
    for where in ([], [str(out)]):
        status = main(["discover", *where])
        printed = capsys.readouterr().out
        assert str(out) not in printed
        assert "`trainwarden run` announces them and they are watched: r\n" in printed
    assert status == 1
    assert "\n# No other run was found" in printed
