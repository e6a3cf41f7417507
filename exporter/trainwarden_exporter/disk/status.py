"""The disks on the status page: what is left on each, and whether it may be written to."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from trainwarden_exporter import wording
from trainwarden_exporter.disk.sightings import DiskSighting
from trainwarden_exporter.serving import page

_UNKNOWN = "&ndash;"


def disk_section(disks: Iterable[DiskSighting]) -> str:
    """The section as HTML; empty where no disk is watched."""
    rows = "\n".join(f"<tr>{_disk(disk)}</tr>" for disk in disks)
    columns = {"Disk": "", "State": "", "Free": "memory", "Writes": "number"}
    return page.section("Disks", page.table(columns, rows)) if rows else ""


def _disk(disk: DiskSighting) -> str:
    free = _UNKNOWN
    if disk.free is not None and disk.size:
        tone = disk.tone if disk.low else "good"
        free = (
            f'{wording.size(disk.free)} <span class="quiet">of {wording.size(disk.size)}</span>'
            f"{page.bar(1 - disk.free / disk.size, tone)}"
        )
    speed = _UNKNOWN if disk.speed is None else f"{wording.size(disk.speed)}/s"
    return "".join(
        (
            f'<td class="name" data-label="Disk">{escape(disk.path)}</td>',
            f'<td data-label="State"><span class="state {disk.tone}">{disk.state}</span></td>',
            f'<td class="memory" data-label="Free">{free}</td>',
            page.number("Writes", speed),
        )
    )
