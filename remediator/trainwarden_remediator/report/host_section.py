"""Summarises the state of the host at the first decision. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_exporter.step_dirs.names import number_unit
from trainwarden_remediator.journal.evidence_text import held_memory
from trainwarden_remediator.report.markdown import TimeFormat, bullets, code, format_elapsed, text
from trainwarden_remediator.report.model import EvidenceRecord, IncidentRecord

MAX_WORKERS = 12


def host_section(incident: IncidentRecord, times: TimeFormat) -> str:
    """Returns the state of the host at the first decision; "" without evidence."""
    record = next(iter(incident.evidence), None)
    if record is None:
        return ""
    lines = [
        *_run(record, times),
        *_workers(record, times),
        *_servers(record, times),
        *_memory(record),
        *_gpus(record),
        *_disks(record),
    ]
    return f"The host at {times.clock(record.at)}:\n\n{bullets(lines)}" if lines else ""


def _run(record: EvidenceRecord, times: TimeFormat) -> Iterator[str]:
    for name, run in record.exporter_facts("runs").items():
        parts = []
        if (step := run.get("step")) is not None:
            made = run.get("last_step_at")
            ago = "" if made is None else f" ({format_elapsed(record.at - made)} earlier)"
            parts.append(f"step {step:g}{ago}")
        if phase := run.get("phase"):
            parts.append(f"phase {text(str(phase))}")
        if run.get("finished"):
            parts.append("**finished**")
        if (saved := run.get("checkpoint")) is not None:
            at = run.get("checkpoint_at")
            ago = "" if at is None else f", saved {times.full(at)}"
            unit = number_unit(run.get("proved_checkpoint", ""))
            parts.append(f"newest complete checkpoint: {unit} {saved:g}{ago}")
        if (matches := run.get("recovery_matches")) is not None:
            parts.append(f"recovery record {'matches' if matches else '**does not match**'}")
        if parts:
            yield f"Run {code(name)}: {'; '.join(parts)}."


def _workers(record: EvidenceRecord, times: TimeFormat) -> Iterator[str]:
    for name, worker in list(record.exporter_facts("workers").items())[:MAX_WORKERS]:
        count, expected = worker.get("processes", 0), worker.get("expected", 0)
        up = f"{count:g} of {expected:g} up"
        parts = [up if count == expected or worker.get("finished") else f"**{up}**"]
        if count:
            held = format_size(held_memory(worker))
            limit = worker.get("memory_limit_bytes")
            parts.append(f"{held} of {format_size(limit)}" if limit else held)
        if (since := worker.get("started_at")) is not None:
            parts.append(f"since {times.clock(since)} ({format_elapsed(record.at - since)})")
        if worker.get("finished"):
            parts.append("finished")
        yield f"Worker {code(name)}: {', '.join(parts)}."


def _servers(record: EvidenceRecord, times: TimeFormat) -> Iterator[str]:
    for name, server in record.exporter_facts("servers").items():
        since = server.get("since")
        when = "" if since is None else f" since {times.clock(since)}"
        up = "up" if server.get("up") else f"**not up** ({text(str(server.get('reason', '?')))})"
        token = server.get("answered")
        probe = (
            "" if token is None else ", completed a token" if token else ", completed **no token**"
        )
        yield f"Inference server {code(name)}: {up}{when}{probe}."


def _memory(record: EvidenceRecord) -> Iterator[str]:
    memory: Mapping[str, Any] = record.content.get("memory", {})
    if not memory:
        return
    low = memory["available"] < memory["floor"]
    left = f"{format_size(memory['available'])} of {format_size(memory['total'])} available"
    yield f"Memory: {f'**{left}**' if low else left}."


def _gpus(record: EvidenceRecord) -> Iterator[str]:
    gpus: Mapping[str, Any] = record.content.get("gpus", {})
    for device in gpus.get("devices", ()):
        used, total = device.get("used"), device.get("total")
        if used is not None and total:
            share = f"{format_size(used)} of {format_size(total)} used ({100 * used / total:.0f} %)"
            yield f"GPU {text(str(device.get('gpu', '')))}: {share}."
    if gpus and not gpus.get("devices") and gpus.get("driver") != "absent":
        yield f"GPUs: driver **{text(str(gpus.get('driver')))}** {text(str(gpus.get('reason')))}."
    if gpus and gpus.get("devices"):
        orphans = sum(bool(holder.get("orphan")) for holder in gpus.get("holders", ()))
        yield f"GPU holders that belong to no worker: {f'**{orphans}**' if orphans else 'none'}."


def _disks(record: EvidenceRecord) -> Iterator[str]:
    for path, disk in record.exporter_facts("disks").items():
        free, whole = disk.get("free"), disk.get("size")
        parts = "its free space is not known"
        if free is not None and whole:
            parts = f"{format_size(free)} of {format_size(whole)} free"
        if not disk.get("up", True):
            parts = "**does not respond**"
        if disk.get("read_only"):
            parts += ", **read-only**"
        yield f"Disk {code(path)}: {parts}."
