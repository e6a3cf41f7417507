"""Stacks as an operator reads them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.__main__ import main
from trainwarden_exporter.preflight import stacks_command
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Diagnosis,
    Finding,
    Frame,
    Member,
    Movement,
    Stacks,
    Suspect,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.sampler import sample_run
from trainwarden_exporter.processes.stacks.text import as_data, render
from trainwarden_exporter.processes.stacks.words import describe

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

KEY = WorkerKey("night", "trainer")


def finding(rank: int, activity: Activity, function: str, file: str = "/srv/t.py") -> Finding:
    pid = 10 + rank
    member = Member(KEY, "trainer", Identity(pid, 1), 1, rank=rank, world=3, is_trainer=True)
    frames = (Frame(function, file, 7),)
    return Finding(
        member, activity, "all_reduce", stacks=Stacks((ThreadStack("MainThread", pid, frames),))
    )


def test_the_process_that_others_wait_for_comes_first_and_equal_stacks_are_listed_once() -> None:
    waits = [finding(rank, Activity.COLLECTIVE, "reduce") for rank in (0, 1)]
    odd = finding(2, Activity.SLEEP, "nap")
    diagnosis = Diagnosis(
        Movement.STUCK,
        (*waits, odd),
        (Suspect(2, KEY, Activity.SLEEP, odd),),
        "a ← b",
        dumps="Flight Recorder: 1 dump",
    )

    assert list(render(diagnosis)) == [
        "stuck: a ← b",
        "Flight Recorder: 1 dump",
        "",
        "trainer, pid 12: rank 2 sleeps at t.py:7",
        "    thread MainThread",
        "        nap (/srv/t.py:7)",
        "",
        "trainer, pid 10: rank 0 waits in all_reduce",
        "trainer, pid 11: rank 1 waits in all_reduce",
        "    thread MainThread",
        "        reduce (/srv/t.py:7)",
    ]


@pytest.mark.parametrize(
    ("activity", "detail", "function", "file", "text"),
    [
        (Activity.IDLE, "", "f", "/srv/t.py", "waits for something unknown"),
        (Activity.IDLE, "do_epoll_wait", "f", "/srv/t.py", "waits for an event in f (t.py:7)"),
        (
            Activity.IDLE,
            "poll_schedule_timeout.constprop.0",
            "f",
            "/t.py",
            "an event in f (t.py:7)",
        ),
        (
            Activity.IDLE,
            "futex_wait_queue",
            "Worker.main_loop",
            "/site-packages/ray/_private/worker.py",
            "waits for a task of Ray",
        ),
        (
            Activity.SERVER,
            "_run_once (asyncio/base_events.py)",
            "select",
            "/usr/lib/python3.12/selectors.py",
            "waits for a server or an event in _run_once (asyncio/base_events.py)",
        ),
    ],
)
def test_a_wait_whose_end_is_unknown_has_a_word(
    activity: Activity, detail: str, function: str, file: str, text: str
) -> None:
    one = replace(finding(0, activity, function, file), detail=detail)
    assert describe(one).endswith(text)


@pytest.mark.parametrize(
    "folder", ["lib/python3.12", "lib64/python3.11", "lib/python3.13t", "lib/pypy3.10"]
)
def test_a_wait_is_named_with_the_line_of_the_program_and_not_of_a_library(folder: str) -> None:
    one = finding(0, Activity.QUEUE, "get", f"/usr/{folder}/queue.py")
    frames = (*one.stacks.threads[0].frames, Frame("load", "/srv/data.py", 18))
    stack = replace(one.stacks.threads[0], frames=frames)
    assert describe(replace(one, stacks=Stacks((stack,)))).endswith("a queue at data.py:18")


def test_the_stacks_of_a_process_that_has_ended_are_not_shown() -> None:
    gone = finding(0, Activity.GONE, "nap")
    diagnosis = Diagnosis(Movement.UNKNOWN, (gone,))
    assert "nap" not in "\n".join(render(diagnosis))
    assert "nap" not in str(as_data("night", diagnosis))


def test_what_looks_like_a_secret_is_redacted() -> None:
    diagnosis = Diagnosis(
        Movement.UNKNOWN, (finding(0, Activity.IDLE, "f", "/srv/hf_abcdefghijklmnop/t.py"),)
    )

    assert "hf_abcdefghijklmnop" not in "\n".join(render(diagnosis))
    assert "hf_abcdefghijklmnop" not in str(as_data("night", diagnosis))


def test_a_program_reads_the_same_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = finding(2, Activity.SLEEP, "nap")
    suspects = (Suspect(2, KEY, Activity.SLEEP, odd), Suspect(3, KEY, Activity.GONE))
    diagnosis = Diagnosis(Movement.STUCK, (odd,), suspects, "a ← b")
    monkeypatch.setattr(stacks_command, "sample_run", lambda *_: diagnosis)
    file = tmp_path / "exporter.yml"
    file.write_text(f"runs_folder: {tmp_path}\nruns: [{{name: night}}]\n")
    assert main(["stacks", f"--config.file={file}", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["run"], shown["movement"], shown["chain"]) == ("night", "stuck", "a ← b")
    (process,) = shown["processes"]
    assert shown["suspects"] == [process["pid"]] == [12]
    assert (process["activity"], process["text"]) == ("sleep", describe(odd))
    (thread,) = process["threads"]
    assert thread["frames"] == [{"function": "nap", "file": "/srv/t.py", "line": 7}]


def test_a_real_run_is_sampled_and_shown_with_its_dumps(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"shown-trainer-{os.getpid()}"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/trace_")
    start("import queue\nprint(flush=True)\nqueue.Queue().get()", mark)
    (tmp_path / "trace_0").write_text('{"entries": []}')
    os.utime(tmp_path / "trace_0", (time.time() + 5,) * 2)
    worker = {"name": "trainer", "role": "trainer", "match": {"command": mark}}
    run = RunWorkers.model_validate({"name": "night", "workers": [worker]})

    text = "\n".join(render(sample_run(run, Matcher({KEY: run.workers[0].match}), pause=0.2)))

    assert "waits for a queue" in text
    assert "queue.py" in text
    assert "Flight Recorder: 1 dump, written 0" in text
