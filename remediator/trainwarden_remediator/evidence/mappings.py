"""The memory of a process by what is mapped, as evidence."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from trainwarden_exporter.processes.procfs import PROC, Identity, read_process
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_remediator.evidence.log_tail import truncate
from trainwarden_remediator.journal.event_text import printable

LARGEST = 8
"""The number of mappings to list."""

_SUMMED = ("Rss", "Pss", "Anonymous", "Shared_Clean", "Shared_Dirty", "Swap")


def read_mappings(processes: Collection[Identity]) -> dict[str, Any] | None:
    """Returns what the largest of `processes` has mapped, or None if none of them runs.

    Sizes are bytes. Raises OSError, PermissionError where the process may not be read.
    """
    found = [
        one
        for identity in processes
        if (one := read_process(identity.pid)) is not None and one.identity == identity
    ]
    if not found:
        return None
    largest = max(found, key=lambda one: one.resident_bytes)
    with (PROC / str(largest.pid) / "smaps").open(errors="replace") as lines:
        return {"pid": largest.pid, **parse_smaps(lines)}


def parse_smaps(lines: Iterable[str]) -> dict[str, Any]:
    """Sums the lines of smaps, and lists the largest mappings by what they are (proc_pid_smaps(5)).

    Mappings of the same file count as one, and all that have no name count as one.
    """
    sums: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    name = ""
    for line in lines:
        field, _, rest = line.partition(":")
        if "-" in field:  # the addresses with which a mapping begins
            names = line.split(maxsplit=5)[5:]
            name = names[0].strip() if names else "[anonymous]"
        elif field in _SUMMED:
            size = int(rest.split()[0]) << 10
            sums[field.lower()] += size
            if field == "Rss":
                sizes[name] += size
    largest = heapq.nlargest(LARGEST, sizes.items(), key=lambda one: one[1])
    return {
        "sums": dict(sums),
        "largest": [
            {"bytes": size, "what": truncate(redact(printable(what)))} for what, size in largest
        ],
    }
