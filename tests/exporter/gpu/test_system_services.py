from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.gpu.system_services import is_system_service, system_unit
from trainwarden_exporter.processes.procfs_parser import parse_cgroups

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("0::/system.slice/dbus.service", "dbus.service"),
        ("0::/system.slice/systemd-logind.service", "systemd-logind.service"),
        ("0::/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
        ("0::/system.slice/udisks2.service/worker", "udisks2.service"),
        ("1:name=systemd:/system.slice/dbus.service", "dbus.service"),
        ("0::/init.scope", "init.scope"),
        ("4:memory:/system.slice/dbus.service", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope", ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service", ""),
        ("0::/system.slice/docker-0123.scope", ""),
        ("0::/system.slice/ssh.service", ""),
        ("0::/system.slice/cron.service", ""),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope", ""),
        ("0::/", ""),
    ],
)
def test_services_of_the_host_are_known_by_their_unit(line: str, unit: str) -> None:
    assert system_unit(parse_cgroups(f"{line}\n")) == unit


@pytest.mark.parametrize("name", ["session.slice/dbus.service", "app.slice/dbus-broker.service"])
def test_the_bus_of_a_session_is_a_service(name: str) -> None:
    line = f"0::/user.slice/user-1000.slice/user@1000.service/{name}\n"
    assert system_unit(parse_cgroups(line))


def test_the_unit_of_this_program_holds_workers_too(proc: FakeProc) -> None:
    own = "0::/system.slice/trainwarden-remediator.service\n"
    proc.add(900, ["trainwarden-remediator"], cgroup=own)
    proc.add(10, ["python", "train.py"], cgroup=own)
    proc.add(11, ["anything"], cgroup="0::/system.slice/anything.service\n")
    assert not is_system_service(10, 900, proc.root)
    assert is_system_service(11, 900, proc.root)
