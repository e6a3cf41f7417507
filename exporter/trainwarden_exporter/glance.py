"""The whole box in a few lines at the head of the status page: what one looks for at night."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from trainwarden_exporter import wording
from trainwarden_exporter.disk.sightings import DiskSighting
from trainwarden_exporter.gpu.sightings import GpusSighting
from trainwarden_exporter.progress.sightings import CheckpointSighting, RunSighting
from trainwarden_exporter.remediation.status import action_in_short, alerts_in_short
from trainwarden_exporter.remediation.told import Told
from trainwarden_exporter.serving import page
from trainwarden_exporter.sightings import HostSighting, Tone, WorkerSighting

MOST_NAMED = 4
"""Of what is wrong in one place so many are named there; the rest is below."""

_WORST: tuple[Tone, ...] = ("bad", "warn", "good")

Line = tuple[str, str, str, str]
"""What it is about, tone, what is said, and what is added in a softer voice; all of it text."""


@dataclass(frozen=True, slots=True)
class Sightings:
    """All that was seen of the box for one page."""

    runs: Sequence[RunSighting]
    workers: Sequence[WorkerSighting]
    host: HostSighting
    gpus: GpusSighting
    disks: Sequence[DiskSighting]
    told: Told | str | None = None
    """What the remediator says, or why it says nothing; None where none is configured."""


def glance_section(seen: Sightings, *, now: float) -> str:
    """The section as HTML; empty where there is nothing but the host to look at."""
    lines = [
        *(line for run in seen.runs for line in _run(run, alone=len(seen.runs) == 1)),
        *_workers(seen.workers),
        *_servers(seen.runs),
        *_gpus(seen.gpus),
    ]
    if lines or seen.told is not None:
        lines += [*_told(seen.told, now=now), *_memory(seen.host), *_disks(seen.disks)]
    listed = "".join(_entry(*line) for line in lines)
    return page.section("At a glance", f"<dl>{listed}</dl>") if listed else ""


def _entry(name: str, tone: str, said: str, more: str) -> str:
    softer = f' <span class="quiet">{escape(more)}</span>' if more else ""
    state = f'<span class="state {tone}">{escape(said)}</span>'
    return f"<div><dt>{escape(name)}</dt><dd>{state}{softer}</dd></div>"


def _run(run: RunSighting, *, alone: bool) -> Iterator[Line]:
    """Its phase and step, and its newest checkpoint."""
    step = ""
    if run.step is not None:
        step = f"step {run.step:,.0f}{'' if run.total is None else f' of {run.total:,.0f}'}"
    yield f"Run {run.name}", run.tone, run.state, step
    if saved := newest(run.checkpoints):
        age = "none" if saved.age is None else _ago(saved.age)
        step = "" if saved.step is None else f"step {saved.step:,.0f}"
        tone = worst(one.tone for one in run.checkpoints)  # of an older kind, too
        yield f"Checkpoint{'' if alone else f' of {run.name}'}", tone, age, step


def newest(checkpoints: Iterable[CheckpointSighting]) -> CheckpointSighting | None:
    """Of several kinds the one that was saved last; None without any."""
    oldest = float("inf")
    return min(checkpoints, key=lambda one: oldest if one.age is None else one.age, default=None)


def _workers(workers: Sequence[WorkerSighting]) -> Iterator[Line]:
    if not workers:
        return
    up = sum(worker.processes >= worker.expected and not worker.finished for worker in workers)
    finished = sum(worker.finished for worker in workers)
    wrong = [worker.name for worker in workers if worker.tone in ("bad", "warn")]
    more = [f"{finished} finished"] if finished else []
    more += _first(wrong)
    tone = worst(worker.tone for worker in workers)
    yield "Workers", tone, f"{up} of {len(workers)} up", ", ".join(more)


def _servers(runs: Iterable[RunSighting]) -> Iterator[Line]:
    servers = [server for run in runs for server in run.servers]
    if not servers:
        return
    up = sum(server.up for server in servers)
    wrong = [f"{one.name} {one.reason.replace('_', ' ')}" for one in servers if not one.up]
    queued = sum(server.waiting or 0 for server in servers)
    more = ", ".join(_first(wrong)) or f"{queued:,.0f} queued"
    yield "Inference", worst(one.tone for one in servers), f"{up} of {len(servers)} up", more


def _gpus(gpus: GpusSighting) -> Iterator[Line]:
    if not gpus.present:
        return
    up = sum(gpu.up for gpu in gpus.gpus)
    busy = [gpu.utilization for gpu in gpus.gpus if gpu.utilization is not None]
    more = list(gpus.troubles)
    if busy:
        more.append(f"{sum(busy) / len(busy):.0%} busy")
    tone = "bad" if gpus.troubles else worst(gpu.tone for gpu in gpus.gpus)
    yield "GPUs", tone, f"{up} of {max(len(gpus.gpus), gpus.expected):.0f} up", ", ".join(more)


def _told(told: Told | str | None, *, now: float) -> Iterator[Line]:
    if told is None:
        return
    if isinstance(told, str):
        yield "Remediator", "warn", "no answer", told
        return
    yield "Alerts", *alerts_in_short(told)
    yield "Last action", *action_in_short(told, now=now)


def _memory(host: HostSighting) -> Iterator[Line]:
    if host.available is not None:
        more = "" if host.total is None else f"of {wording.size(host.total)}"
        yield "Memory", host.tone, f"{wording.size(host.available)} free", more


def _disks(disks: Sequence[DiskSighting]) -> Iterator[Line]:
    """The one that is nearest to its end."""
    if not disks:
        return
    tone = worst(disk.tone for disk in disks)

    def left(disk: DiskSighting) -> tuple[bool, float]:
        return disk.tone != tone, (disk.free or 0) / disk.size if disk.size else 0.0

    first = min(disks, key=left)
    free = "" if first.free is None else f"{wording.size(first.free)} free"
    said = first.state if first.tone != "good" or not free else free
    yield "Disk", tone, said, first.path if said == free else f"{first.path} {free}".strip()


def _first(names: Sequence[str]) -> list[str]:
    left = len(names) - MOST_NAMED
    return [*names[:MOST_NAMED], *([f"{left} more"] if left > 0 else [])]


def worst(tones: Iterable[Tone]) -> Tone:
    """The worst of them; `quiet` where all are."""
    given = set(tones)
    return next((tone for tone in _WORST if tone in given), "quiet")


def _ago(seconds: float) -> str:
    return f"{wording.span(round(seconds))} ago"
