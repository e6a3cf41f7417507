"""Harm 1: a process that was identified by its pid alone ends, and a stranger gets the pid."""

from __future__ import annotations

from tests.remediator.harms.namespaces import run_apart

REUSE = """
import os, signal, subprocess, sys, time
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.actions.termination import terminate

def sleeper():
    return subprocess.Popen(["sleep", "600"])

def known(pid):
    process = read_process(pid)
    assert process is not None
    return process.identity

worker = sleeper()
intended = known(worker.pid)
worker.kill()
worker.wait()
# the next process is given the same number, later by at least one tick of the kernel's clock
while True:
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(intended.pid - 1))
    stranger = sleeper()
    if stranger.pid == intended.pid and known(stranger.pid) != intended:
        break
    stranger.kill()
    stranger.wait()
    time.sleep(0.02)
killed = terminate([intended], [intended], grace=0.2)
assert killed == (), killed
assert stranger.poll() is None, "a stranger was ended"
# what goes by the number alone does harm
os.kill(intended.pid, signal.SIGKILL)
assert stranger.wait(60) == -signal.SIGKILL
print("spared")
"""


def test_a_stranger_that_was_given_the_pid_of_a_worker_is_spared() -> None:
    assert run_apart(REUSE) == "spared"
