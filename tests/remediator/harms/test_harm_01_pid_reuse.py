"""Harm 1: a pid that was told apart by its number alone passes on to a stranger."""

from __future__ import annotations

from tests.remediator.harms.namespaces import run_apart

REUSE = """
import os, signal, subprocess, sys, time
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.ending import end

def sleeper():
    return subprocess.Popen(["sleep", "600"])

def known(pid):
    process = read_process(pid)
    assert process is not None
    return process.identity

worker = sleeper()
meant = known(worker.pid)
worker.kill()
worker.wait()
# the next process is given the same number, later by at least one tick of the kernel's clock
while True:
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(meant.pid - 1))
    stranger = sleeper()
    if stranger.pid == meant.pid and known(stranger.pid) != meant:
        break
    stranger.kill()
    stranger.wait()
    time.sleep(0.02)
killed = end([meant], [meant], grace=0.2)
assert killed == (), killed
assert stranger.poll() is None, "a stranger was ended"
# what goes by the number alone does harm
os.kill(meant.pid, signal.SIGKILL)
assert stranger.wait(10) == -signal.SIGKILL
print("spared")
"""


def test_a_stranger_that_was_given_the_pid_of_a_worker_is_spared() -> None:
    assert run_apart(REUSE) == "spared"
