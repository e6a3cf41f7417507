"""The units of deploy/systemd in a real systemd: one story, in order."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from stack import PROJECT

if TYPE_CHECKING:
    from tests.systemd.conftest import Box

SERVICES = tuple(
    f"trainwarden-{part}.service"
    for part in ("exporter", "remediator", "prometheus", "alertmanager")
)
EXPORTER, REMEDIATOR, *SERVERS = SERVICES
START_SECONDS = 60
WATCHDOG_SECONDS = 60
HEAL_SECONDS = 120
BACKOFF_SECONDS = 600
"""After a second restart within the hour, the third waits for twice the cooldown of 120 s."""
MOST_EXPOSED = {EXPORTER: 2.5, REMEDIATOR: 3.1, **dict.fromkeys(SERVERS, 1.3)}
"""What `systemd-analyze security` may say at most: 0 is best, 10 worst, and a plain unit 9.6."""

KILL, DAC_READ_SEARCH, SYS_PTRACE = 5, 2, 19
"""Numbers of capabilities (linux/capability.h)."""

WORKER = "trainwarden-worker@rollout-0.service"
LEAKING = "trainwarden-worker@rollout-2.service"
UNIT = "trainwarden-worker@rollout-1.service"
"""A worker whose target is the unit itself."""
CONFIG = """\
state_folder: /var/lib/trainwarden/exporter
runs:
  - name: grpo
    path: /srv/run
    workers:
      - {name: rollout-0, role: rollout, match: {command: '^sleep 100000$', user: nobody}}
      - {name: rollout-1, role: rollout, match: {command: '^sleep 100001$'}}
"""
LEAKING_WORKER = """\
      - name: rollout-2
        role: rollout
        match: {command: ' 100002$', user: nobody}
        memory_limit: 40MiB
"""
TARGETS = """\
targets:
  - run: grpo
    worker: rollout-0
    process: {start: [systemctl, start, trainwarden-worker@rollout-0.service], user: root}
  - run: grpo
    worker: rollout-1
    systemd: {unit: trainwarden-worker@rollout-1.service}
"""
LEAKING_TARGET = """\
  - run: grpo
    worker: rollout-2
    process:
      start: [systemctl, start, trainwarden-worker@rollout-2.service]
      user: root
      grace: 10m
"""
LEAK = """\
#!/bin/sh
echo >> /srv/run/starts
test -e /srv/run/calm && exec sleep 100002
exec python3 -c 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)
leak = b"x" * (80 << 20); time.sleep(100000)' 100002
"""


def active(box: Box) -> bool:
    output = box.tries("systemctl", "is-active", "trainwarden.target", *SERVICES)
    return output.split() == ["active"] * 5


def capabilities(status: str, name: str) -> set[int]:
    mask = int(re.findall(rf"^{name}:\s+(\w+)$", status, re.MULTILINE)[0], 16)
    return {number for number in range(64) if mask >> number & 1}


def test_one_command_starts_the_set(box: Box) -> None:
    box.run("systemctl", "enable", "--now", "trainwarden.target")
    box.wait_until(lambda: active(box), START_SECONDS)
    assert [box.show(unit, "NRestarts") for unit in SERVICES] == ["0"] * 4
    assert "enabled" in box.run("systemctl", "status", "--no-pager", "trainwarden.target")
    for port in (10977, 10978, 9090, 9093):
        box.fetch(port, "/-/ready")


def test_alerts_reach_the_remediator_with_the_token_that_systemd_hands_out(box: Box) -> None:
    series = 'trainwarden_remediator_webhooks_total{code="200"}'
    box.wait_until(lambda: series in box.fetch(10978, "/metrics"), START_SECONDS)
    token = box.run("cat", "/etc/trainwarden/webhook-token")
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert token not in box.run("journalctl", "--no-pager")


def test_each_has_the_rights_it_needs_and_no_more(box: Box) -> None:
    exporter, remediator = box.status(EXPORTER), box.status(REMEDIATOR)
    seeing = {DAC_READ_SEARCH, SYS_PTRACE}
    assert capabilities(exporter, "CapEff") == capabilities(exporter, "CapBnd") == seeing
    assert (
        capabilities(remediator, "CapEff")
        == capabilities(remediator, "CapBnd")
        == {
            KILL,
            *seeing,
        }
    )
    for unit in SERVERS:
        assert capabilities(box.status(unit), "CapBnd") == set()
    for unit in SERVICES:
        status = box.status(unit)
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), unit
        assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE), unit
        root = re.search(r"^Uid:\s+0\s", status, re.MULTILINE) is not None
        assert root is (unit == REMEDIATOR), unit


@pytest.mark.parametrize("unit", SERVICES)
def test_its_exposure_stays_low(box: Box, unit: str) -> None:
    output = box.run("systemd-analyze", "security", "--no-pager", unit)
    exposure = float(re.findall(r"exposure level for \S+: ([0-9.]+)", output)[0])
    assert exposure <= MOST_EXPOSED[unit]


def test_nothing_listens_beyond_loopback(box: Box) -> None:
    for name in ("tcp", "tcp6"):
        lines = box.run("cat", f"/proc/net/{name}").splitlines()[1:]
        listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
        assert all(each.startswith("0100007F:") for each in listening), listening


def test_a_worker_that_is_gone_is_started_as_its_own_unit(box: Box) -> None:
    example = (PROJECT / "deploy/systemd/trainwarden-worker@.service").read_text(encoding="utf-8")
    box.write("/etc/systemd/system/trainwarden-worker@.service", example)
    box.run("mkdir", "-p", "/srv/run/bin")
    for number in (0, 1):
        program = f"/srv/run/bin/rollout-{number}"
        box.write(program, f"#!/bin/sh\nexec sleep {100000 + number}\n")
        box.run("chmod", "+x", program)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", WORKER, UNIT)
    remediator = box.run("cat", "/etc/trainwarden/remediator.yml")
    box.write("/etc/trainwarden/exporter.yml", CONFIG)
    box.write(
        "/etc/trainwarden/remediator.yml",
        remediator.replace("mode: observe", "mode: act") + "\n" + TARGETS,
    )
    box.run("systemctl", "reload", EXPORTER, REMEDIATOR)
    running = re.compile(r'^trainwarden_worker_processes{.*"rollout-0".*} 1', re.MULTILINE)
    box.wait_until(lambda: running.search(box.fetch(10977, "/metrics")), START_SECONDS)
    # The sandbox of the exporter itself is no trouble of the run's.
    disks = [
        line for line in box.fetch(10977, "/metrics").splitlines() if "disk_read_only{" in line
    ]
    assert [line.rpartition(" ")[2] for line in disks] == ["0.0"]

    before = box.pid(WORKER)
    box.run("kill", "-KILL", str(before))
    box.wait_until(lambda: box.pid(WORKER) not in (0, before), HEAL_SECONDS)
    box.wait_until(
        lambda: [each for each in box.journal() if each["kind"] == "outcome"], HEAL_SECONDS
    )
    (outcome,) = [each for each in box.journal() if each["kind"] == "outcome"]
    assert (outcome["worker"], outcome["facts"]["outcome"]) == ("rollout-0", "healed")
    # It is not a part of the watch, and not within its sandbox.
    assert "trainwarden-worker" in box.run("cat", f"/proc/{box.pid(WORKER)}/cgroup")
    assert re.search(r"^Seccomp:\s+0$", box.status(WORKER), re.MULTILINE)


def reported(box: Box, kind: str, worker: str = "rollout-1") -> list[Mapping[str, Any]]:
    """What is written down of a worker."""
    every = [each for each in box.journal() if each["worker"] == worker]
    return [each["facts"] for each in every if each["kind"] == kind]


def test_a_failed_unit_is_started_by_its_manager_and_a_stopped_unit_is_not(
    box: Box,
) -> None:
    before = box.show(UNIT, "InvocationID")
    box.run("kill", "-KILL", str(box.pid(UNIT)))
    box.wait_until(lambda: reported(box, "outcome"), HEAL_SECONDS)
    assert [each["outcome"] for each in reported(box, "outcome")] == ["healed"]
    restarted = box.show(UNIT, "InvocationID")
    assert restarted != before
    assert [each["processes"] for each in reported(box, "intent")] == [[f"{UNIT} {before}"]]
    assert reported(box, "start")[0] == {"manager": "systemd", "what": UNIT}

    box.run("systemctl", "stop", UNIT)
    reasons = ("managed_elsewhere",)
    box.wait_until(
        lambda: [each for each in reported(box, "decision") if each["reason"] in reasons],
        HEAL_SECONDS,
    )
    assert box.pid(UNIT) == 0
    assert len(reported(box, "intent")) == 1
    box.run("systemctl", "start", UNIT)


def test_a_remediator_that_hangs_is_restarted_by_its_watchdog(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    before, worker = box.pid(REMEDIATOR), box.pid(WORKER)
    began = time.monotonic()
    box.run("kill", "-STOP", str(before))
    box.wait_until(lambda: box.pid(REMEDIATOR) not in (0, before) and active(box), WATCHDOG_SECONDS)
    with capsys.disabled():
        print(f"\nback {time.monotonic() - began:.0f} s after it hung")  # noqa: T201 - to be seen
    assert "Watchdog timeout" in box.run("journalctl", "--no-pager", f"--unit={REMEDIATOR}")
    assert box.pid(WORKER) == worker
    box.fetch(10978, "/-/ready")


@pytest.mark.parametrize("unit", SERVICES)
def test_what_is_killed_comes_back(box: Box, unit: str) -> None:
    before = box.pid(unit)
    box.run("kill", "-KILL", str(before))
    box.wait_until(lambda: box.pid(unit) not in (0, before) and active(box), START_SECONDS)


def test_after_a_reboot_all_of_it_is_there_and_knows_what_it_knew(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    written = len(box.journal())
    assert written > 0
    token = box.run("cat", "/etc/trainwarden/webhook-token")
    box.run("touch", "/run/before")
    began = time.monotonic()
    box.reboot()
    assert box.tries("ls", "/run/before") == ""
    box.wait_until(lambda: active(box), START_SECONDS)
    with capsys.disabled():
        print(f"\nall is back {time.monotonic() - began:.0f} s after the reboot began")  # noqa: T201
    assert len(box.journal()) >= written
    assert box.run("cat", "/etc/trainwarden/webhook-token") == token
    # Nobody has enabled it, so after a reboot it is gone, and started by the remediator.
    box.wait_until(lambda: box.pid(WORKER), HEAL_SECONDS)


def test_an_action_that_a_reboot_interrupts_is_completed_and_not_repeated(box: Box) -> None:
    box.write("/srv/run/bin/rollout-2", LEAK)
    box.run("chmod", "+x", "/srv/run/bin/rollout-2")
    box.run("sh", "-c", "touch /srv/run/starts && chown nobody /srv/run/starts")
    box.run("systemctl", "start", LEAKING)
    for name, more in (("exporter", LEAKING_WORKER), ("remediator", LEAKING_TARGET)):
        file = f"/etc/trainwarden/{name}.yml"
        box.write(file, f"{box.run('cat', file)}\n{more}")
    box.run("systemctl", "reload", EXPORTER, REMEDIATOR)
    box.wait_until(lambda: reported(box, "stop", "rollout-2"), HEAL_SECONDS)
    assert box.pid(LEAKING) != 0, "it ignores SIGTERM, and its grace has not passed"
    box.run("touch", "/srv/run/calm")
    box.reboot()
    box.wait_until(lambda: active(box), START_SECONDS)
    box.wait_until(lambda: reported(box, "outcome", "rollout-2"), HEAL_SECONDS)
    (outcome,) = reported(box, "outcome", "rollout-2")
    assert outcome["outcome"] == "healed"
    assert len(reported(box, "intent", "rollout-2")) == 1
    assert box.run("wc", "-l", "/srv/run/starts").split()[0] == "2"
    assert box.pid(LEAKING) != 0
    box.wait_until(lambda: box.pid(WORKER), BACKOFF_SECONDS)


def test_it_can_be_installed_over_itself_without_losing_what_was_written(box: Box) -> None:
    token = box.run("cat", "/etc/trainwarden/webhook-token")
    box.run("python3", "/src/deploy/systemd/install.py")
    assert box.run("cat", "/etc/trainwarden/webhook-token") == token
    assert "targets:" in box.run("cat", "/etc/trainwarden/remediator.yml")
    assert active(box)


def test_removing_it_ends_it_and_leaves_configuration_and_journal(box: Box) -> None:
    box.run("python3", "/src/deploy/systemd/install.py", "--remove")
    assert box.tries("systemctl", "list-units", "--no-legend", "trainwarden-[earp]*").split() == []
    left = box.run(
        "ls", "/etc/systemd/system", "/etc/trainwarden", "/var/lib/trainwarden/remediator"
    )
    assert "journal.db" in left
    assert "exporter.yml" in left
    assert "trainwarden.target" not in left
    assert box.pid(WORKER) != 0
