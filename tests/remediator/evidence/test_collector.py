"""What is put into evidence, and that taking it never holds anything up."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.fakes import FakeObserver
from tests.remediator.live_host import Box
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    NOW,
    ROLLOUT,
    delivery,
    make_alert,
    make_setup,
    make_worker,
)
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.config import HostConfig
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.alertmanager.webhook_payload import parse_notification
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.evidence import sources as evidence_sources
from trainwarden_remediator.evidence.collector import (
    MAX_BYTES,
    EvidenceCollector,
    fit_to_size,
    relevant_facts,
)
from trainwarden_remediator.evidence.log_tail import parse_tail, read_tail
from trainwarden_remediator.evidence.mappings import parse_smaps, read_mappings
from trainwarden_remediator.evidence.sources import read_process_table, sources
from trainwarden_remediator.evidence.stacks import read_run_stacks
from trainwarden_remediator.evidence.triggers import EvidenceTrigger
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.journal.journal import EVIDENCE_SECONDS, Journal
from trainwarden_remediator.observation.model import DiskState, ExporterState, RunState

SECRET = "s3cr3t-Value"


def kept(journal: Journal) -> list[dict[str, Any]]:
    rows = journal._file.read("SELECT * FROM evidence ORDER BY id")
    return [{**dict(row), "content": json.loads(row["content"])} for row in rows]


# logs


def test_the_last_lines_are_reported_as_an_operator_may_read_them() -> None:
    data = b"one\n\x1b[31mred\x1b[0m\n 10%|#\r 50%|##\r\n\xff\x07\ntoken=" + SECRET.encode() + b"\n"
    lines = parse_tail(data, 4)
    assert lines == ["red", " 50%|##", "\N{REPLACEMENT CHARACTER}" * 2, "token=[redacted]"]


def test_of_a_large_log_only_the_end_is_read_without_a_partial_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {number:07}\n" for number in range(100_000)))
    tail = read_tail("a", str(log), 1_000_000)
    assert tail is not None
    assert tail["lines"][-1] == "line 0099999"
    assert len(tail["lines"]) < 6000
    assert all(len(line) == len("line 0000000") for line in tail["lines"])
    assert tail["size"] == log.stat().st_size


def test_what_is_no_regular_file_is_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_tail("a", str(tmp_path / "pipe")) is None
    assert read_tail("a", str(tmp_path / "nothing")) is None
    assert read_tail("a", str(tmp_path)) is None


# processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "--api-key", SECRET, "mark-77"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_the_tree_of_the_target_and_the_largest_are_reported(
    child: subprocess.Popen[bytes],
) -> None:
    selectors = {ROLLOUT: Selector.model_validate({"command": "mark-77"})}
    found = json.loads(json.dumps(read_process_table(ROLLOUT, [], selectors)))
    (own,) = found["tree"]
    assert (own["pid"], own["parent"]) == (child.pid, os.getpid())
    assert own["bytes"] > 0
    assert "mark-77" in own["command"]
    assert SECRET not in json.dumps(found)
    assert 0 < len(found["largest"]) <= 10
    assert found["largest"][0]["bytes"] >= found["largest"][-1]["bytes"]


def test_of_a_process_of_another_account_only_program_and_account_are_reported(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    selectors = {ROLLOUT: Selector.model_validate({"command": "mark-77"})}
    monkeypatch.setattr(evidence_sources, "read_uid", lambda *_: 987654)
    monkeypatch.setattr(evidence_sources, "read_owner", lambda *_: "alice")
    found = read_process_table(ROLLOUT, [], selectors)
    assert "mark-77" in found["tree"][0]["command"]
    others = [one["command"] for one in found["largest"] if one["pid"] != child.pid]
    assert others
    assert all(re.fullmatch(r"\[.*\] of alice", command) for command in others)
    down = Selector.model_validate({"command": "mark-78", "user": "987654"})
    found = read_process_table(ROLLOUT, [], {**selectors, WorkerKey("demo", "down"): down})
    assert not any("of alice" in one["command"] for one in found["largest"])


def test_what_would_be_ended_is_reported_though_no_selector_finds_it(
    child: subprocess.Popen[bytes],
) -> None:
    process = read_process(child.pid)
    assert process is not None
    stranger = Identity(os.getpid(), 1)
    found = read_process_table(WorkerKey("", "gpus"), [process.identity, stranger], {})
    assert [one["pid"] for one in found["tree"]] == [child.pid]


# stacks and mappings


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three ranks: two read, one sleeps."""
    text = "import sys, time\ndef lag():\n    time.sleep(600)\n"
    waits = text + "print(flush=True); sys.stdin.read(1)  # rank-88"
    sleeps = text + "print(flush=True); lag()  # rank-88"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"},
        )
        for rank, code in enumerate((waits, waits, sleeps))
    ]
    for one in processes:
        assert one.stdout is not None
        one.stdout.readline()
    yield processes
    for one in processes:
        one.kill()
        one.communicate()


def run_of_ranks() -> tuple[RunConfig, Mapping[WorkerKey, Selector]]:
    worker = {"name": "trainer", "role": "trainer", "match": {"command": "rank-88"}}
    run = RunConfig.model_validate({"name": "night", "workers": [worker]})
    return run, {WorkerKey("night", "trainer"): run.workers[0].match}


def test_the_stacks_of_the_run_are_reported_rare_ones_first(
    ranks: list[subprocess.Popen[bytes]],
) -> None:
    run, selectors = run_of_ranks()
    found = json.loads(json.dumps(read_run_stacks(run, selectors, HostConfig(), seconds=60)))
    assert found["of_run"] == 3
    shown = found["stacks"]
    listed = [line for line in shown if ", pid " in line]
    assert len(listed) == 3
    assert f"pid {ranks[2].pid}:" in listed[0]
    assert shown[0] == listed[0]
    assert any("lag (" in line for line in shown[: shown.index(listed[1])])


def test_stacks_that_are_not_read_in_time_are_reported_as_such(
    ranks: list[subprocess.Popen[bytes]],
) -> None:
    run, selectors = run_of_ranks()
    found = read_run_stacks(run, selectors, HostConfig(), seconds=0)
    assert found["of_run"] == len(ranks)
    assert "    no Python stack: not read in time" in found["stacks"]


def test_no_program_is_started_for_stacks_where_memory_is_short() -> None:
    host = HostConfig.model_validate({"memory_available_floor": "1024TiB"})
    with pytest.raises(CollectError, match="memory is short"):
        read_run_stacks(*run_of_ranks(), host)


def test_the_largest_mappings_of_the_largest_process_are_reported(
    child: subprocess.Popen[bytes],
) -> None:
    process = read_process(child.pid)
    assert process is not None
    found = read_mappings([process.identity, Identity(os.getpid(), 1)])
    assert found is not None
    assert found["pid"] == child.pid
    assert 0 < found["largest"][0]["bytes"] <= found["sums"]["rss"]
    assert read_mappings([Identity(os.getpid(), 1)]) is None


def test_mappings_are_summed_by_file() -> None:
    smaps = """\
55d0-55e0 r--p 00000000 08:01 131 /opt/my env/libtorch.so
Size:                 64 kB
Rss:                  60 kB
Pss:                  30 kB
Shared_Clean:         60 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
55e0-55f0 rw-p 00000000 08:01 131 /opt/my env/libtorch.so
Rss:                   4 kB
Pss:                   4 kB
Anonymous:             4 kB
7f00-7f10 rw-p 00000000 00:00 0
Rss:                1000 kB
Swap:                 16 kB
"""
    found = parse_smaps(smaps.splitlines(keepends=True))
    assert found["largest"] == [
        {"bytes": 1000 << 10, "what": "[anonymous]"},
        {"bytes": 64 << 10, "what": "/opt/my env/libtorch.so"},
    ]
    assert found["sums"] == {
        "rss": 1064 << 10,
        "pss": 34 << 10,
        "shared_clean": 60 << 10,
        "anonymous": 4 << 10,
        "swap": 16 << 10,
    }


def test_what_the_exporter_shows_of_a_run_and_a_disk_is_json() -> None:
    """Sets are not: evidence with one was lost, for every run."""
    runs = {"demo": RunState(step=1, damaged_checkpoints=frozenset({"/b", "/a"}))}
    disks = (DiskState("/runs", runs=frozenset({"sft", "demo"})), DiskState("/"))
    state = ExporterState({}, 1.0, 1.0, runs=runs, disks=disks)
    found = json.loads(fit_to_size(relevant_facts(state, "demo", ROLLOUT)))
    assert found["runs"]["demo"]["damaged_checkpoints"] == ["/a", "/b"]
    assert found["disks"]["/runs"]["runs"] == ["demo", "sft"]
    healthy = ExporterState({}, 1.0, 1.0, runs={"demo": RunState(step=1)})
    assert json.loads(fit_to_size(relevant_facts(healthy, "demo", ROLLOUT)))["runs"]


# bounds


def test_what_is_too_much_is_shortened_and_says_so() -> None:
    content = {
        "missing": {},
        "processes": {"tree": [{"pid": number, "command": "x" * 200} for number in range(500)]},
        "logs": [{"name": "a", "lines": [f"{number} {'y' * 300}" for number in range(500)]}],
    }
    text = fit_to_size(content)
    assert len(text.encode()) <= MAX_BYTES
    found = json.loads(text)
    assert found["shortened"] is True
    assert found["logs"][0]["lines"][-1].startswith("499 ")
    assert found["processes"]["tree"][0]["pid"] == 0


def test_what_cannot_be_shortened_is_left_out_as_a_whole() -> None:
    found = json.loads(fit_to_size({"missing": {"x": "y" * 100_000}}))
    assert found["missing"] == {"everything": "too large"}


def test_it_is_kept_once_for_each_occasion_and_not_for_ever(
    journal: Journal, clock: FakeClock
) -> None:
    journal.keep_evidence(1, None, "hold", '{"first": 1}')
    journal.keep_evidence(1, None, "hold", '{"second": 1}')
    journal.keep_evidence(1, None, "gave_up", "{}")
    journal.keep_evidence(1, 4, "act", "{}")
    assert [(row["action"], row["kind"]) for row in kept(journal)] == [
        (None, "hold"),
        (None, "gave_up"),
        (4, "act"),
    ]
    assert kept(journal)[0]["content"] == {"first": 1}
    clock.pass_by(EVIDENCE_SECONDS + 1)
    journal.keep_evidence(2, 5, "act", "{}")
    assert [row["incident"] for row in kept(journal)] == [2]


# taking


class Sources:
    """Sources that answer, fail or hang, as the test sets."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.free = threading.Event()

    def __call__(self, trigger: EvidenceTrigger, setup: Setup) -> Mapping[str, Any]:
        return {name.replace("_", " "): self._source(name) for name in self.answers}

    def _source(self, name: str) -> Any:
        def answer() -> Any:
            self.asked.append(name)
            found = self.answers[name]
            if isinstance(found, Exception):
                raise found
            if found == "hang":
                self.free.wait(60)
            return found

        return answer


OCCASION = EvidenceTrigger("act", 1, ROLLOUT, "demo", 7)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return make_setup(tmp_path, "demo/rollout-0")


async def test_everything_that_can_be_had_is_kept_and_what_cannot_is_named(
    journal: Journal, setup: Setup
) -> None:
    observer = FakeObserver(workers={ROLLOUT: make_worker()})
    log = {"name": "a", "path": "/a", "lines": ["x"]}
    given = Sources(memory={"total": 1}, log_a=log, log_b=None, gpus=OSError("no such thing"))
    taker = EvidenceCollector(journal, lambda: observer, sources=given, timeout=40)
    await taker.collect(OCCASION, setup)
    (row,) = kept(journal)
    assert (row["incident"], row["action"], row["kind"], row["at"]) == (1, 7, "act", NOW)
    content = row["content"]
    assert content["memory"] == {"total": 1}
    assert content["logs"] == [log]
    assert content["missing"].keys() == {"log b", "gpus"}
    assert content["missing"]["gpus"] == "no such thing"
    shown = content["seen"]["workers"]["demo/rollout-0"]
    assert shown["memory_bytes"] == 9 * GIB
    assert "age_limit_seconds" not in shown


async def test_what_hangs_is_named_and_not_asked_again_until_it_answers(
    journal: Journal, setup: Setup
) -> None:
    observer = FakeObserver(blind=ObservationError("nobody is there"))
    given = Sources(memory={"total": 1}, log_a="hang")
    taker = EvidenceCollector(journal, lambda: observer, sources=given, timeout=2)
    try:
        await taker.collect(OCCASION, setup)
        async with asyncio.timeout(60):
            while not kept(journal):  # noqa: ASYNC110 - the journal sets no event
                await asyncio.sleep(0.02)
        (row,) = kept(journal)
        assert "no response" in row["content"]["missing"]["log a"]
        assert row["content"]["missing"]["the exporter's page"] == "nobody is there"
        given.answers["memory"] = {"total": 2}
        await taker.collect(EvidenceTrigger("act", 1, ROLLOUT, "demo", 8), setup)
        assert given.asked.count("log_a") == 1
    finally:
        given.free.set()


async def test_runs_that_fail_together_each_keep_their_log_and_what_the_host_is(
    journal: Journal, tmp_path: Path
) -> None:
    keys = [WorkerKey(name, "trainer") for name in ("first", "second")]
    setup = make_setup(tmp_path, *("/".join(key) for key in keys))
    runs = []
    for run in setup.exporter_config.runs:
        path = tmp_path / f"{run.name}.log"
        path.write_text(f"KeyError: of {run.name}\n")
        log = {"name": "output", "files": [str(path)]}
        runs.append(RunConfig.model_validate({"name": run.name, "logs": [log]}))
    setup = Setup(setup.config, setup.exporter_config.model_copy(update={"runs": tuple(runs)}))
    observer = FakeObserver(workers={key: make_worker() for key in keys})
    taker = EvidenceCollector(journal, lambda: observer, timeout=60)
    triggers = [EvidenceTrigger("gave_up", one, key, key.run) for one, key in enumerate(keys, 1)]
    await asyncio.gather(*(taker.collect(trigger, setup) for trigger in triggers))
    for row, key in zip(sorted(kept(journal), key=lambda row: row["incident"]), keys, strict=True):
        content = row["content"]
        assert not content["missing"].keys() & {"processes", "memory", "stacks", "log output"}
        assert [one["lines"] for one in content["logs"]] == [[f"KeyError: of {key.run}"]]
        assert content["processes"]["on_box"] > 0
        assert content["memory"]["available"] > 0


async def test_what_is_of_the_whole_host_is_asked_once_for_all(
    journal: Journal, setup: Setup
) -> None:
    observer = FakeObserver(workers={ROLLOUT: make_worker()})
    given = Sources(memory={"total": 1}, processes={})
    taker = EvidenceCollector(journal, lambda: observer, sources=given, timeout=60)
    other = EvidenceTrigger("act", 2, WorkerKey("demo", "rollout-1"), "demo", 8)
    await asyncio.gather(taker.collect(OCCASION, setup), taker.collect(other, setup))
    assert [row["content"]["memory"] for row in kept(journal)] == [{"total": 1}] * 2
    assert sorted(given.asked) == ["memory", "processes", "processes"]


async def test_a_box_without_threads_or_a_journal_that_fails_stops_nothing(
    journal: Journal, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: str) -> SerialThread:
        raise RuntimeError("can't start new thread")

    observer = FakeObserver(workers={ROLLOUT: make_worker()})
    taker = EvidenceCollector(
        journal, lambda: observer, sources=Sources(memory={}), thread_factory=no_thread
    )
    await taker.collect(OCCASION, setup)
    (row,) = kept(journal)
    assert row["content"]["missing"] == {"memory": "can't start new thread"}

    def full(*_: Any) -> None:
        raise JournalError("disk full")

    monkeypatch.setattr(journal, "keep_evidence", full)
    await taker.collect(EvidenceTrigger("act", 1, ROLLOUT, "demo", 9), setup)
    assert len(kept(journal)) == 1


def test_the_real_sources_tell_of_logs_of_the_target_and_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("of the worker\n")
    process = {"start": ["/bin/true"], "log": "worker.log"}
    target = {"run": "demo", "worker": "rollout-0", "process": process}
    setup = make_setup(tmp_path, "demo/rollout-0", targets=[target])
    os.mkfifo(tmp_path / "pipe.log")
    run = setup.exporter_config.runs[0].model_copy(update={"path": tmp_path})
    logs = [
        {"name": "trainer", "files": [str(tmp_path / "trainer.log")]},
        {"name": "pipe", "files": [str(tmp_path / "pipe.log")]},
    ]
    run = type(run).model_validate({**run.model_dump(exclude={"workers"}), "logs": logs})
    (tmp_path / "trainer.log").write_text("\n".join(f"step {n}" for n in range(200)))
    setup = Setup(setup.config, setup.exporter_config.model_copy(update={"runs": (run,)}))
    found = sources(OCCASION, setup)
    assert found["log output of rollout-0"]()["lines"] == ["of the worker"]
    assert found["log trainer"]()["lines"][-1] == "step 199"
    assert len(found["log trainer"]()["lines"]) == 15
    assert found["log pipe"]() is None
    memory = found["memory"]()
    assert 0 < memory["available"] <= memory["total"]
    assert "mappings" not in found


def test_the_real_sources_show_stacks_of_the_run_and_the_memory_of_what_is_ended(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]]
) -> None:
    ended = read_process(ranks[0].pid)
    assert ended is not None
    setup = make_setup(tmp_path, "demo/rollout-0")
    key = WorkerKey("night", "trainer")
    trigger = EvidenceTrigger("act", 1, key, "night", 7, processes=(ended.identity,))
    assert "stacks" not in sources(trigger, setup), "a run that is not watched"
    runs = (run_of_ranks()[0],)
    setup = Setup(setup.config, setup.exporter_config.model_copy(update={"runs": runs}))
    found = sources(trigger, setup)
    assert found["stacks"]()["of_run"] == len(ranks)
    assert found["mappings"]()["pid"] == ended.identity.pid


# the engine


class Taken:
    """Where the engine's occasions go."""

    def __init__(self, scene: Scene) -> None:
        self.occasions: list[EvidenceTrigger] = []
        self.done_before: list[list[int]] = []
        self._scene = scene
        scene.context.evidence = self.collect

    async def collect(self, trigger: EvidenceTrigger, setup: Setup) -> None:
        self.occasions.append(trigger)
        self.done_before.append(list(self._scene.action.restarts))


async def test_it_is_taken_after_the_intent_and_before_the_act(stage: Stage) -> None:
    taken: list[Taken] = []
    async with stage(before=lambda scene: taken.append(Taken(scene))) as scene:
        scene.hear()
        await scene.clock.advance(3)
        assert scene.action.restarts
        ended = scene.action.identity
    trigger = taken[0].occasions[0]
    assert (trigger.kind, trigger.key, trigger.action) == ("act", ROLLOUT, 1)
    assert list(trigger.processes) == [ended]
    assert trigger.snapshot is not None
    assert taken[0].done_before[0] == []


async def test_it_is_taken_once_when_others_are_held_and_when_it_is_given_up(
    stage: Stage,
) -> None:
    taken: list[Taken] = []
    async with stage(before=lambda scene: taken.append(Taken(scene)), attempts=1) as scene:
        loop = {"alertname": "Loop", "remediation": "hold_restarts"}
        scene.hear(fingerprint="2" * 16, run="second", worker="trainer", **loop)
        scene.action.heal = {}
        scene.hear()
        await scene.pass_time(400)
        journaled = scene.journaled()
    kinds = [one.kind for one in taken[0].occasions]
    assert kinds.count("hold") == 1
    assert "attempts_exhausted" in journaled
    assert kinds.count("gave_up") == 1


async def test_how_the_run_goes_on_is_looked_at_when_it_is_over(stage: Stage) -> None:
    taken: list[Taken] = []
    async with stage(before=lambda scene: taken.append(Taken(scene))) as scene:
        scene.hear()
        await scene.clock.advance(30)
        scene.observer.known = {FINGERPRINT: AlertState.ACTIVE}
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20, firing=False)])
        await scene.clock.advance(10)
    last = taken[0].occasions[-1]
    assert (last.kind, last.key, last.snapshot) == ("end", ROLLOUT, None)


async def test_the_real_program_keeps_it_before_it_ends_a_worker(box: Box) -> None:
    box.configure()
    worker = box.start_worker()
    remediator = Remediator(box.config_file)
    async with remediator:
        remediator.readiness.ready = True
        remediator.journal.record_alerts(parse_notification(delivery(box.alert())).alerts)
        running = asyncio.create_task(remediator.control_loop.run())
        try:
            async with asyncio.timeout(60):
                while "healed" not in await asyncio.to_thread(box.journaled):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        (row,) = kept(remediator.journal)
        for action in remediator.control_loop._executor._actions.values():
            for child in getattr(action, "_children", ()):
                child.kill()
                child.wait(60)
    content = row["content"]
    assert (row["kind"], row["action"]) == ("act", 1)
    assert [one["pid"] for one in content["processes"]["tree"]] == [worker.pid]
    assert content["seen"]["workers"]["demo/rollout-0"]["memory_bytes"] == 9 * GIB
    stopped = next(event for event in box.events() if event.kind == "stop")
    assert row["at"] <= stopped.at
