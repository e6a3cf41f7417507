"""Formats evidence as collapsible Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_remediator.report.markdown import (
    TimeFormat,
    code,
    collapsible,
    fence,
    format_offset,
    table,
    text,
)
from trainwarden_remediator.report.model import EvidenceRecord

_KINDS = {
    "act": "before action {action}",
    "hold": "when restarts were blocked",
    "gave_up": "when the incident was abandoned",
    "end": "at the end of the incident",
}


def evidence_section(records: Iterable[EvidenceRecord], start: float, times: TimeFormat) -> str:
    """Returns all evidence, each piece in a collapsible section."""
    return "\n\n".join(_record(record, start, times) for record in records)


def last_lines(record: EvidenceRecord, count: int) -> tuple[str, list[str]] | None:
    """Returns the path and the last lines of the first log that is not empty, or None.

    The target's own logs come first.
    """
    log = next((log for log in record.logs if log.get("lines")), None)
    if log is None:
        return None
    return str(log.get("path", "")), [str(line) for line in log["lines"]][-count:]


def _record(record: EvidenceRecord, start: float, times: TimeFormat) -> str:
    kind = _KINDS.get(record.kind, record.kind).format(action=record.action)
    summary = f"Evidence {kind}, {times.clock(record.at)} ({format_offset(record.at, start)})"
    return collapsible(summary, "\n\n".join(_parts(record, times)) or "No evidence was available.")


def _parts(record: EvidenceRecord, times: TimeFormat) -> Iterator[str]:
    content = record.content
    if memory := content.get("memory"):
        yield f"**Memory**: {_memory(memory)}"
    processes = content.get("processes", {})
    if tree := processes.get("tree"):
        count = processes["of_target"]
        yield f"**Target**, {_process_count(count)}"
        yield _processes(tree, times)
    if largest := processes.get("largest"):
        yield f"**Largest of the host's {processes['on_box']} processes**"
        yield _processes(largest, times)
    yield from _mappings(content.get("mappings"))
    yield from _stacks(content.get("stacks"))
    if gpus := content.get("gpus"):
        yield f"**GPUs**: {_gpus(gpus)}"
        if holders := gpus.get("holders"):
            yield fence(_holder(one) for one in holders)
    for log in record.logs:
        length = format_size(log["size"])
        head = f"**Log {code(str(log['name']))}**, {code(str(log['path']))}, {length},"
        yield f"{head} last written to {times.clock(log['modified'])}:"
        yield fence(map(str, log["lines"])) if log["lines"] else "The log is empty."
    if seen := content.get("seen"):
        yield "**State shown by the exporter**"
        yield fence(_series(seen, times))
    for name, why in content.get("missing", {}).items():
        yield f"*Missing:* {text(name)}: {text(str(why))}"
    if content.get("shortened"):
        yield "*Truncated.*"


def _memory(memory: Mapping[str, Any]) -> str:
    size = {name: format_size(value) for name, value in memory.items()}
    summary = f"{size['available']} of {size['total']} available, floor {size['floor']}"
    if "cgroup_limit" in size:
        used, limit = size["cgroup_working_set"], size["cgroup_limit"]
        summary += f"; cgroup: {used} of its limit of {limit}"
    return f"{summary}."


def _mappings(found: Mapping[str, Any] | None) -> Iterator[str]:
    if found is None:
        return
    sums = ", ".join(f"{name} {format_size(size)}" for name, size in found["sums"].items())
    yield f"**Memory of process {found['pid']}**: {sums}; its largest mappings:"
    yield fence(f"{format_size(one['bytes']):>10}  {one['what']}" for one in found["largest"])


def _stacks(found: Mapping[str, Any] | None) -> Iterator[str]:
    if found is not None and found["stacks"]:
        yield f"**Stacks** of the run, {_process_count(found['of_run'])}, rare ones first"
        yield fence(map(str, found["stacks"]))


def _process_count(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"


def _processes(rows: Iterable[Mapping[str, Any]], times: TimeFormat) -> str:
    return table(
        ("pid", "parent", "started", "state", "memory", "command"),
        (
            (
                str(row["pid"]),
                str(row["parent"]),
                times.short(row["started"]),
                text(str(row["state"])),
                format_size(row["bytes"]),
                code(str(row["command"])),
            )
            for row in rows
        ),
    )


def _gpus(gpus: Mapping[str, Any]) -> str:
    devices = []
    for device in gpus.get("devices", ()):
        used, total = device.get("used"), device.get("total")
        known = used is not None and total is not None
        memory = f" {format_size(used)} of {format_size(total)} used" if known else ""
        devices.append(f"GPU {text(str(device['gpu']))} {text(str(device['name']))}{memory}")
    why = f" ({text(str(gpus['reason']))})" if gpus.get("reason") else ""
    return "; ".join(devices) or f"driver {text(str(gpus.get('driver', '')))}{why}"


def _holder(holder: Mapping[str, Any]) -> str:
    owner = holder.get("worker") or ("leftover" if holder.get("orphan") else "no worker")
    return f"{owner}: {holder.get('is', '')}"


def _series(seen: Mapping[str, Any], times: TimeFormat) -> Iterator[str]:
    for kind, things in seen.items():
        if not isinstance(things, Mapping):
            continue
        single = {name: value for name, value in things.items() if not isinstance(value, Mapping)}
        if single:
            yield f"{kind}: {_facts(single, times)}"
        for name, facts in things.items():
            if isinstance(facts, Mapping):
                yield f"{kind.rstrip('s')} {name}: {_facts(facts, times)}"


def _facts(facts: Mapping[str, Any], times: TimeFormat) -> str:
    return ", ".join(f"{name}={_value(name, value, times)}" for name, value in facts.items())


def _value(name: str, value: Any, times: TimeFormat) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith("bytes") or name in ("free", "size"):
        return format_size(value)
    return times.clock(value) if name.endswith("_at") or name == "since" else f"{value:g}"
