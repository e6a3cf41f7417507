"""Names that no target may have: what keeps the box, or the watch over it, alive."""

from __future__ import annotations

import re

_WATCH = (
    r"trainwarden-?(exporter|remediator|prometheus|alertmanager|grafana)"
    r"|prometheus(-.*exporter)?|alertmanager|exporter|remediator"
)
_BOX = (
    r"init|systemd(-.*)?|dbus(-.*)?|polkit|udev|getty|user|sshd?|supervisord?|docker(d)?|containerd"
    r"|podman|crio|kubelet|kube-.*|slurmd|slurmctld|slurmdbd|munge|network(ing|manager)?|cron"
    r"|nvidia-(persistenced|fabricmanager)"
)
# As compose names them as well: `box-prometheus-1`, `box_prometheus_1`.
_PROTECTED = re.compile(rf"({_WATCH}|{_BOX})|(.+[-_])?({_WATCH})[-_]\d+|trainwarden-supervisor")


def refuse_protected(name: str) -> str:
    """`name` of a unit, container or program, if a target may have it. Raises ValueError."""
    stem = name.lower().removesuffix(".service").partition("@")[0].rpartition(":")[2]
    if _PROTECTED.fullmatch(stem):
        raise ValueError(f"{name} is protected: it keeps the box, or the watch over it, alive")
    return name
