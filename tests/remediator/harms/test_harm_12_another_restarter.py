"""Harm 12: something else restarts the same worker, and the two fight."""

from __future__ import annotations

import sys

from tests.remediator.process_yard import Steps, Yard, alive

# On SIGTERM it starts a copy of itself before it ends, as a watchdog of its own would.
COMES_BACK = """
import os, signal, subprocess, sys, time

def end(*_):
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", sys.argv[1]]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    print(child.pid, flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    time.sleep(1)
"""


def test_where_another_was_quicker_there_is_one_worker_and_not_two(yard: Yard) -> None:
    worker, _ = yard.run_command(sys.executable, "-c", COMES_BACK, yard.mark)
    (root,) = yard.tree().roots
    facts = yard.action.perform("7", Steps())
    assert worker.stdout is not None
    quicker = int(worker.stdout.readline())
    yard.care_for(quicker)
    assert (facts["started_by"], facts["processes"]) == ("another", [quicker])
    # nor does an action that meant the one before end what was started in its place
    facts = yard.action.perform("8", Steps(), intended=[root.identity])
    assert (facts["started_by"], facts["processes"]) == ("another", [quicker])
    assert alive(quicker)
    assert [one.pid for one in yard.tree().roots if one.alive] == [quicker]
    assert yard.action._children == []
