"""Recognises services of the host by their unit.

Any account can pass an open device file to a service (unix(7), SCM_RIGHTS); such a service is no
leftover of a run.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, Cgroup, read_cgroups

_SYSTEM = re.compile(
    r"/init\.scope|/system\.slice/(?:[^/]+\.slice/)*(?P<unit>[^/]+\.service)(?:/.*)?"
)
_SESSION = re.compile(
    r".*/user@\d+\.service/(?:init\.scope|session\.slice|(?:.*/)?dbus(?:-broker)?\.service)(?:/.*)?"
)
"""The manager, bus and desktop of a user, as systemd groups them (systemd.special(7))."""

# Units in whose cgroup the commands of users run, with the daemons themselves known by name.
_STARTS_COMMANDS = re.compile(
    r"(?:sshd?(?:@.*)?|crond?|cronie|atd|anacron|supervisord?|docker|containerd|slurmd|podman.*)"
    r"\.service"
)


def system_unit(cgroups: tuple[Cgroup, ...]) -> str:
    """Returns the unit of a service of the host or of a session's bus; "" for any other process."""
    for controllers, path in cgroups:
        if controllers not in ("", "name=systemd"):
            continue
        if match := _SYSTEM.fullmatch(path):
            unit = match["unit"] or "init.scope"
            return "" if _STARTS_COMMANDS.fullmatch(unit) else unit
        if _SESSION.fullmatch(path):
            return path
    return ""


def is_system_service(pid: int, own_pid: int, root: Path = PROC) -> bool:
    """Whether a process is a service of the host, other than the unit of this program.

    Workers that the remediator starts stay in its unit.
    """
    unit = system_unit(read_cgroups(pid, root) or ())
    return bool(unit) and unit != system_unit(read_cgroups(own_pid, root) or ())
