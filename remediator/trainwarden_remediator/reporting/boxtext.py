"""How the box stood when it was decided, in a few lines: what one would look up first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwarden_exporter.wording import size
from trainwarden_remediator.reporting.account import Account, Piece
from trainwarden_remediator.reporting.markdown import bullets, code, text
from trainwarden_remediator.reporting.times import Times, took

MOST_WORKERS = 12


def box(account: Account, times: Times) -> str:
    """The box as it was at the first decision; nothing without evidence."""
    piece = next(iter(account.evidence), None)
    if piece is None:
        return ""
    lines = [
        *_run(piece, times),
        *_workers(piece, times),
        *_servers(piece, times),
        *_memory(piece),
        *_gpus(piece),
        *_disks(piece),
    ]
    return f"The box at {times.clock(piece.at)}:\n\n{bullets(lines)}" if lines else ""


def _run(piece: Piece, times: Times) -> Iterator[str]:
    for name, run in piece.seen("runs").items():
        said = []
        if (step := run.get("step")) is not None:
            made = run.get("last_step_at")
            ago = "" if made is None else f" (made {took(piece.at - made)} before)"
            said.append(f"step {step:g}{ago}")
        if phase := run.get("phase"):
            said.append(f"phase {text(str(phase))}")
        if run.get("finished"):
            said.append("**finished**")
        if (saved := run.get("checkpoint")) is not None:
            at = run.get("checkpoint_at")
            ago = "" if at is None else f", saved {times.full(at)}"
            said.append(f"newest complete checkpoint: step {saved:g}{ago}")
        if (matches := run.get("recovery_matches")) is not None:
            said.append(f"recovery record {'fits it' if matches else '**does not fit it**'}")
        if said:
            yield f"Run {code(name)}: {'; '.join(said)}."


def _workers(piece: Piece, times: Times) -> Iterator[str]:
    for name, worker in list(piece.seen("workers").items())[:MOST_WORKERS]:
        count, expected = worker.get("processes", 0), worker.get("expected", 0)
        up = f"{count:g} of {expected:g} up"
        said = [up if count == expected or worker.get("finished") else f"**{up}**"]
        if count:
            held = size(worker.get("resident_bytes", 0))
            limit = worker.get("memory_limit_bytes")
            said.append(f"{held} of {size(limit)}" if limit else held)
        if (since := worker.get("started_at")) is not None:
            said.append(f"since {times.clock(since)} ({took(piece.at - since)})")
        if worker.get("finished"):
            said.append("finished")
        yield f"Worker {code(name)}: {', '.join(said)}."


def _servers(piece: Piece, times: Times) -> Iterator[str]:
    for name, server in piece.seen("servers").items():
        since = server.get("since")
        when = "" if since is None else f" since {times.clock(since)}"
        up = "up" if server.get("up") else f"**not up** ({text(str(server.get('reason', '?')))})"
        token = server.get("answered")
        asked = "" if token is None else ", last gave a token" if token else ", gave **no token**"
        yield f"Inference server {code(name)}: {up}{when}{asked}."


def _memory(piece: Piece) -> Iterator[str]:
    memory: Mapping[str, Any] = piece.content.get("memory", {})
    if not memory:
        return
    low = memory["available"] < memory["floor"]
    left = f"{size(memory['available'])} of {size(memory['total'])} available"
    kills = memory.get("oom_kills")
    killed = "" if kills is None else f"; {kills or 'no'} OOM kills in its cgroup so far"
    yield f"Memory: {f'**{left}**' if low else left}{killed}."


def _gpus(piece: Piece) -> Iterator[str]:
    gpus: Mapping[str, Any] = piece.content.get("gpus", {})
    for device in gpus.get("devices", ()):
        used, total = device.get("used"), device.get("total")
        if used is not None and total:
            share = f"{size(used)} of {size(total)} used ({100 * used / total:.0f} %)"
            yield f"GPU {text(str(device.get('gpu', '')))}: {share}."
    if gpus and not gpus.get("devices") and gpus.get("driver") != "absent":
        yield f"GPUs: driver **{text(str(gpus.get('driver')))}** {text(str(gpus.get('reason')))}."
    if gpus and gpus.get("devices"):
        orphans = sum(bool(holder.get("orphan")) for holder in gpus.get("holders", ()))
        yield f"GPU holders that belong to no worker: {f'**{orphans}**' if orphans else 'none'}."


def _disks(piece: Piece) -> Iterator[str]:
    for path, disk in piece.seen("disks").items():
        free, whole = disk.get("free"), disk.get("size")
        said = f"{size(free)} of {size(whole)} free" if free is not None and whole else "?"
        if not disk.get("up", True):
            said = "**does not answer**"
        if disk.get("read_only"):
            said += ", **read-only**"
        yield f"Disk {code(path)}: {said}."
