"""A remediator that stands still, and nobody ends it: as `make up` runs it, and with nothing else.

In both the process lives on, so that a supervisor that only waits for its end sees no fault.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parts import Parts, parts, write_config
from running import Up, alive, fetch, up
from trainwarden_exporter.processes.procfs import Identity, read_processes

RULE = "TrainingRemediatorDown"
STILL = ("remediator", "exporter")
LONGEST_SECONDS = 300
ASKED_SECONDS = 12
"""Seconds until the watch most likely had an answer of each; it treats a program that has never
answered as starting, for three minutes."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def programs(run: Up) -> dict[str, Identity]:
    """What supervisord runs now, by command line."""
    lines = {identity.pid: line for line, identity in run.processes().items()}
    (supervisord,) = (pid for pid, line in lines.items() if "/supervisord -n " in line)
    return {
        lines[pid]: process.identity
        for pid, process in read_processes().items()
        if process.parent_pid == supervisord and pid in lines
    }


def is_well(run: Up, part: str) -> bool:
    try:
        return fetch(f"{run.url(part)}/-/healthy")[0] == 200
    except OSError:
        return False


def test_only_the_stalled_worker_is_ended_and_restarted(tmp_path: Path) -> None:
    with up(tmp_path / "run", CONFIG="", MODE="observe") as run:
        run.wait_until(lambda: "What happens:" in run.text(), LONGEST_SECONDS)
        began = time.monotonic()
        run.wait_until(lambda: time.monotonic() - began > ASKED_SECONDS, LONGEST_SECONDS)
        before = programs(run)
        still = {line for line in before for part in STILL if f"trainwarden-{part} run " in line}
        assert len(still) == len(STILL)
        assert len(before) >= 9  # the demo's four, Prometheus, Alertmanager and the watch as well
        for line in still:
            os.kill(before[line].pid, signal.SIGSTOP)

        def back() -> bool:
            now = programs(run)
            return all(now.get(line, before[line]) != before[line] for line in still)

        run.wait_until(back, LONGEST_SECONDS)
        run.wait_until(lambda: all(is_well(run, part) for part in STILL), LONGEST_SECONDS)
        after = programs(run)
        assert not any(alive(before[line]) for line in still)
        assert {line for line in before if after.get(line) == before[line]} == before.keys() - still
        log = (run.folder / "logs" / "watch.log").read_text()
        for line in still:
            assert f" (pid {before[line].pid}) hangs, and is killed" in log


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Parts]:
    worker = {"name": "w", "match": {"command": f"{tmp_path}/never there"}}
    config = write_config(
        tmp_path / "config", {"runs": [{"name": "grpo", "workers": [worker]}]}, {"mode": "observe"}
    )
    with parts(tmp_path / "run", config, mode="observe") as stack:
        stack.start("exporter", "alertmanager", "prometheus", "remediator")
        yield stack


def test_where_no_manager_restarts_it_the_on_call_is_paged(stack: Parts) -> None:
    up_now = 'up{job="trainwarden-remediator"} == 1'
    stack.wait_until(lambda: stack.query(up_now), LONGEST_SECONDS)
    still = stack._children["remediator"]
    still.send_signal(signal.SIGSTOP)
    began = time.time()
    try:
        stack.wait_until(lambda: stack.person.calls_about(RULE), LONGEST_SECONDS)
    finally:
        still.send_signal(signal.SIGCONT)
    moment, call = stack.person.calls_about(RULE)[0]
    assert moment >= began
    assert call["commonLabels"]["severity"] == "critical"
    stack.wait_until(lambda: stack.query(up_now), LONGEST_SECONDS)
