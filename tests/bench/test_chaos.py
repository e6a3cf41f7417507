"""The chaos bench: its list of faults, and what it reads from the record of a program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import until

from chaos import faults
from chaos.keepers import KEEPERS
from chaos.measures import measure
from chaos.page import page
from chaos.programs import KINDS, Program, make
from chaos.striking import Striker

DAY = 86400.0
TRAINER = KINDS["trainer"].faults


def run(pid: int, began: float, first: int, last: int, *, load: float = 10) -> list[dict[str, Any]]:
    """What a process records that makes a step each second."""
    start = {"kind": "start", "time": began + 1, "began": began, "pid": pid}
    steps = [
        {"kind": "step", "time": began + load + number, "pid": pid, "step": step}
        for number, step in enumerate(range(first, last + 1))
    ]
    return [start, *steps]


def fault(kind: str, begin: float, until: float | None = None) -> dict[str, Any]:
    end = begin if until is None else until
    return {"kind": kind, "program": "trainer-1", "from": begin, "until": end}


def test_the_faults_of_a_program_depend_on_the_seed_and_its_name_alone() -> None:
    kinds = {"trainer-1": TRAINER, "plain-1": KINDS["plain"].faults}
    both = faults.schedule(7, kinds, 3600)
    alone = faults.schedule(7, {"trainer-1": TRAINER}, 3600)
    assert alone == tuple(one for one in both if one.program == "trainer-1")
    assert alone != faults.schedule(8, {"trainer-1": TRAINER}, 3600)
    assert faults.of_parts(7, 3600) == faults.of_parts(7, 3600)


def test_every_kind_comes_before_any_comes_again() -> None:
    planned = faults.schedule(7, {"trainer-1": TRAINER}, DAY)
    kinds = [one.kind for one in planned]
    assert sorted(kinds[: len(TRAINER)]) == sorted(TRAINER)
    assert {one.part for one in faults.of_parts(7, 3600)} == set(faults.PARTS)


def test_no_program_is_to_be_restarted_thrice_within_ten_minutes() -> None:
    planned = faults.schedule(7, {"trainer-1": TRAINER}, DAY)
    ill = [one.at for one in planned if faults.KINDS[one.kind].ill]
    assert min(third - first for first, third in zip(ill, ill[2:], strict=False)) > 600 + 100
    assert all(sooner.at < later.at for sooner, later in pairwise(planned))


def test_a_program_without_kinds_is_spared() -> None:
    assert faults.schedule(7, {"trainer-spared": ()}, DAY) == ()


def test_a_healthy_program_trains_all_the_time() -> None:
    found = measure(run(1, 0, 1, 100), [], 109)
    assert (found.steps, found.again, found.wrong, found.healings) == (100, 0, (), ())
    assert found.ettr == pytest.approx(1.0)


def test_a_kill_costs_until_a_step_that_was_not_made_before() -> None:
    # killed after step 50 (at 59.5), started at 80, resumes from step 40, makes step 51 at 100
    events = [*run(1, 0, 1, 50), *run(2, 80, 41, 100)]
    found = measure(events, [fault("kill", 59.5)], 149)
    (healing,) = found.healings
    assert healing.seconds == pytest.approx(100 - 59.5)
    assert (healing.load, healing.again) == (10, 10)
    assert (found.steps, found.again, found.starts, found.wrong) == (100, 10, 2, ())
    assert found.training == pytest.approx(99)
    assert found.ettr == pytest.approx(99 / 139)
    # until the end, less the 50 steps of a second that were new
    ((kind, seconds),) = found.losses
    assert kind == "kill"
    assert seconds == pytest.approx(89.5 - 50)


def test_what_never_comes_back_is_not_healed() -> None:
    found = measure(run(1, 0, 1, 50), [fault("hang", 59.5)], 200)
    (healing,) = found.healings
    assert (healing.seconds, healing.healed, healing.until_next) == (None, False, 140.5)


def test_a_step_after_the_next_fault_heals_the_next_one() -> None:
    events = [*run(1, 0, 1, 50), *run(2, 300, 51, 60)]
    found = measure(events, [fault("hang", 59.5), fault("kill", 250)], 400)
    assert [one.healed for one in found.healings] == [False, True]


def test_a_full_disk_counts_from_its_end_and_its_restarts_until_then_are_without_a_step() -> None:
    # full at 40, dies at step 50, tries twice, has space at 140
    tries = [{"kind": "start", "time": t + 1, "began": t, "pid": t} for t in (70, 90)]
    events = [*run(1, 0, 1, 50), *tries, *run(3, 150, 51, 60)]
    found = measure(events, [fault("disk", 40, 140)], 169)
    assert found.healings[0].seconds == pytest.approx(160 - 140)
    assert (found.fruitless, found.wrong) == (2, ())


def test_a_start_on_a_disk_that_is_full_yet_explains_the_next_one() -> None:
    events = [*run(1, 0, 1, 50), *run(2, 70, 51, 55), *run(3, 150, 51, 60)]
    assert measure(events, [fault("disk", 40, 140)], 169).wrong == ()
    assert len(measure(events, [fault("disk", 40, 60)], 169).wrong) == 1


def test_a_start_without_a_fault_is_wrong_and_so_is_one_after_the_end() -> None:
    events = [*run(1, 0, 1, 50), *run(2, 80, 41, 60)]
    (wrong,) = measure(events, [], 200).wrong
    assert (wrong.time, wrong.reason) == (80, "no fault since it trained")
    harmless = measure(events, [fault("renamed", 30)], 200).wrong
    assert len(harmless) == 1
    events = [*run(1, 0, 1, 50), {"kind": "finished", "time": 60, "pid": 1}, *run(2, 80, 51, 51)]
    found = measure(events, [], 200)
    assert [one.reason for one in found.wrong] == ["it had finished"]
    assert found.wall == pytest.approx(50)


def test_a_second_start_after_the_healing_one_is_wrong() -> None:
    events = [*run(1, 0, 1, 50), *run(2, 80, 51, 60), *run(3, 120, 61, 70)]
    found = measure(events, [fault("kill", 59.5)], 200)
    assert [one.time for one in found.wrong] == [120]


def test_a_skipped_fault_explains_nothing() -> None:
    skipped = {"kind": "kill", "program": "trainer-1", "skipped": "it did not train"}
    found = measure([*run(1, 0, 1, 50), *run(2, 80, 51, 60)], [skipped], 200)
    assert (found.healings, len(found.wrong)) == ((), 1)


def test_a_pause_within_steps_is_no_training() -> None:
    events = run(1, 0, 1, 50)
    later = [event | {"time": event["time"] + 100} for event in run(1, 50, 51, 60)[1:]]
    found = measure([*events, *later], [], 169)
    assert found.training == pytest.approx(49 + 5 + 9)


def test_the_page_names_each_wrong_act_and_bounds_what_was_not_seen() -> None:
    events = [*run(1, 0, 1, 50), *run(2, 80, 51, 60)]
    programs = {
        "trainer-1": {"spared": False, "steps": 9, "events": events},
        "trainer-2": {"spared": False, "steps": 9, "events": run(1, 0, 1, 100)},
    }
    few = {"trainer-1": programs["trainer-1"]}
    found = {
        "seed": 7,
        "begin": 0.0,
        "end": 3600.0,
        "gap": 840.0,
        "processors": 2,
        "load": [1.0, 3.0],
        "supervisors": {
            "nothing": {"about": "nobody", "programs": few, "faults": [fault("kill", 59.5)]},
            "Trainwarden": {
                "about": "the stack",
                "programs": programs,
                "faults": [fault("nan", 20, 120)],
                "alerts": [
                    {
                        "run": "trainer-1",
                        "alertname": "TrainingNotFinite",
                        "severity": "critical",
                        "from": 65.0,
                        "until": 90.0,
                    }
                ],
            },
        },
    }
    text = page(found)
    assert "- Trainwarden, trainer-1, minute 1.3, 1x: no fault since it trained." in text
    assert "nothing, trainer-1" not in text
    assert "the next one comes 14 to 15 minutes later" in text
    assert "| SIGKILL to its process | 3530 s |" in text  # 3600 - 59.5 - ten steps
    assert "| ETTR, one in 3 h | 67.3 % |" in text
    assert "| nothing | 1 |" in text
    assert "1 of 1 (≥ 5 %)" in text
    assert "0 (≤ 3)" in text
    assert "| 1 | 1 | 45 s | TrainingNotFinite |" in text


def test_each_fault_of_a_program_can_be_brought_about() -> None:
    assert {kind for one in KINDS.values() for kind in one.faults} | {"part", "operator"} == set(
        faults.KINDS
    )
    assert len({keeper.name for keeper in KEEPERS}) == len(KEEPERS)


def answered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps, and an answer of the server before each."""
    tokens = [one | {"kind": "tokens", "time": one["time"] - 0.5} for one in steps]
    return sorted([*steps, *tokens], key=lambda event: event["time"])


def server_start(began: float) -> dict[str, Any]:
    return {"kind": "start", "time": began + 1, "began": began, "pid": int(began)}


def test_a_killed_server_costs_until_a_step_after_an_answer_of_the_next_one() -> None:
    # killed at 40.2, started at 60, answers at 110
    steps = [
        *run(1, 0, 1, 30),
        {"kind": "step", "time": 41.0, "pid": 1, "step": 31},  # its sample is from before
        *({"kind": "step", "time": 110.5 + n, "pid": 1, "step": 32 + n} for n in range(40)),
    ]
    events = [steps[0], *answered(steps[1:31]), steps[31], *answered(steps[32:])]
    servers = [server_start(-50), server_start(60)]
    found = measure(events, [fault("server_kill", 40.2)], 149.5, servers)
    (healing,) = found.healings
    assert healing.seconds == pytest.approx(110.5 - 40.2)
    assert (healing.load, healing.again) == (50, 0)
    assert (found.starts, found.again, found.wrong) == (1, 0, ())
    assert found.losses[0][1] == pytest.approx(109.3 - 2 - 5 - 39)  # five usual steps count


def test_a_server_that_never_answers_again_is_not_healed() -> None:
    events = [*run(1, 0, 1, 1), *answered(run(1, 0, 1, 31)[2:])]
    for servers in ([server_start(-50)], [server_start(-50), server_start(60)]):
        (healing,) = measure(events, [fault("server_hang", 40.2)], 400, servers).healings
        assert (healing.seconds, healing.load) == (None, None)


def test_a_start_of_a_server_without_a_fault_of_its_own_is_wrong() -> None:
    start, *steps = run(1, 0, 1, 100)
    events, servers = [start, *answered(steps)], [server_start(-50), server_start(60)]
    for faults_ in ([], [fault("kill", 40)], [fault("server_kill", 70)]):
        (wrong,) = measure(events, faults_, 200, servers).wrong
        assert (wrong.time, wrong.reason) == (60, "its server: no fault since it served")
    assert measure(events, [fault("operator", 40)], 200, servers).wrong == ()


def test_a_start_of_a_trainer_whose_server_was_struck_is_wrong() -> None:
    first, *steps = run(1, 0, 1, 30)
    again, *more = run(2, 100, 31, 60)
    events = [first, *answered(steps), again, *answered(more)]
    servers = [server_start(-50), server_start(60)]
    (wrong,) = measure(events, [fault("server_kill", 40)], 200, servers).wrong
    assert (wrong.time, wrong.reason) == (100, "no fault since it trained")


@pytest.mark.parametrize("has_server", [False, True])
def test_the_page_says_whether_there_was_an_inference_server(has_server: bool) -> None:
    first, *steps = run(1, 0, 1, 100)
    servers = [server_start(-50), server_start(60)] if has_server else []
    program = {"spared": False, "steps": 9, "events": [first, *answered(steps)], "server": servers}
    row = {
        "about": "the stack",
        "programs": {"trainer-1": program},
        "faults": [fault("server_kill", 40.2)] if has_server else [],
    }
    found = {"seed": 7, "begin": 0.0, "end": 600.0, "gap": 840.0, "processors": 2, "load": [1.0]}
    text = page(found | {"supervisors": {"Trainwarden": row}})
    assert ("No inference server is among the programs" in text) != has_server
    assert ("a real vLLM on the CPU" in text) == has_server
    assert ("| SIGKILL to its inference server, a vLLM | 1 of 1, 22 s |" in text) == has_server


@pytest.fixture
def served(tmp_path: Path) -> Program:
    (program,) = make({"served-1": "faulty"}, tmp_path, own_disk=False)
    return program


def test_a_server_and_its_trainer_are_two_workers_of_one_run(served: Program) -> None:
    assert served.server is not None
    run_of_both = served.watched()
    workers = {one["name"]: one["match"]["command"] for one in run_of_both["workers"]}
    lines = {part.kind.role: " ".join(part.command) for part in served.parts}
    found = {
        name: [role for role, line in lines.items() if re.search(pattern, line)]
        for name, pattern in workers.items()
    }
    assert found == {"trainer": ["trainer"], "inference": ["inference"]}
    assert run_of_both["inference"] == [{"name": "vllm", "worker": "inference"}]
    assert [part.target()["worker"] for part in served.parts] == ["inference", "trainer"]
    assert served.server.address in served.command


ENGINE = "import time; time.sleep(600)"
ROOT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {ENGINE!r}, "VLLM::EngineCore"])
time.sleep(600)
"""


@pytest.fixture
def processes(served: Program) -> Iterator[list[psutil.Process]]:
    """The server's first process, then its engine; its trainer makes steps."""
    assert served.server is not None
    folder = served.server.folder
    with subprocess.Popen([sys.executable, "-c", ROOT], cwd=folder) as child:
        root = psutil.Process(child.pid)
        until(root.children, 60)
        found = [root, *root.children()]
        until(lambda: "VLLM::EngineCore" in found[1].cmdline(), 60)
        for place, kind in ((folder, "start"), (served.folder, "step")):
            event = {"kind": kind, "time": time.time(), "pid": child.pid, "step": 1}
            (place / "truth.jsonl").write_text(json.dumps(event) + "\n")
        yield found
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_killed_server_leaves_its_engine_which_is_found(
    served: Program, processes: list[psutil.Process]
) -> None:
    root, engine = processes
    striker = Striker(served, lambda: False, is_kept=True)
    record = striker.strike(faults.Fault(0, "served-1", "server_kill"))
    assert record["from"] == record["until"]
    until(lambda: root.status() == psutil.STATUS_ZOMBIE, 60)
    assert served.server is not None
    assert engine in served.server.processes()
    assert served.processes() == []


def test_the_engine_of_a_server_is_stopped_alone(
    served: Program, processes: list[psutil.Process]
) -> None:
    root, engine = processes
    striker = Striker(served, lambda: False, is_kept=True)
    assert "skipped" not in striker.strike(faults.Fault(0, "served-1", "server_hang"))
    until(lambda: engine.status() == psutil.STATUS_STOPPED, 60)
    assert root.status() != psutil.STATUS_STOPPED
