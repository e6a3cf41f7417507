"""Status page: overview section at the top."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from trainwarden_exporter.inference.health_model import HealthReason
from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_exporter.status_page.disks import DiskView
from trainwarden_exporter.status_page.fragments import ago, quiet, state
from trainwarden_exporter.status_page.gpus import GpusView
from trainwarden_exporter.status_page.host import HostView, WorkerView
from trainwarden_exporter.status_page.part_views import SETTLING, CheckpointView, HeartbeatView
from trainwarden_exporter.status_page.remediator import action_summary, alert_summary
from trainwarden_exporter.status_page.remediator_client import RemediatorStatus
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.series import Tone
from trainwarden_exporter.webserver import html

MAX_NAMED = 4
"""Maximum number of problems named per line; the sections below list all."""

_ORDER = {"bad": 0, "warn": 1}

_WORST: tuple[Tone, ...] = ("bad", "warn", "good")

Line = tuple[str, str, str, str]
"""Subject, tone, text and secondary text; all plain text."""


@dataclass(frozen=True, slots=True)
class Views:
    """All view models of one page."""

    runs: Sequence[RunView]
    workers: Sequence[WorkerView]
    host: HostView
    gpus: GpusView
    disks: Sequence[DiskView]
    remediator: RemediatorStatus | str | None = None
    """Status of the remediator, or why it is unavailable; None without a configured remediator."""
    heartbeats: Sequence[HeartbeatView] = ()
    """The heartbeats of no run."""


def overview_section(seen: Views, *, now: float) -> str:
    """Returns the HTML section; empty where only the host is observed."""
    lines = [
        *(line for run in seen.runs for line in _run(run, alone=len(seen.runs) == 1)),
        *_workers(seen.workers),
        *_servers(seen.runs),
        *_gpus(seen.gpus),
    ]
    if lines or seen.remediator is not None:
        lines += [
            *_remediator_lines(seen.remediator, now=now),
            *_memory(seen.host),
            *_disks(seen.disks),
        ]
    # On a phone the first lines are all that is read: what is not green comes first.
    lines.sort(key=lambda line: _ORDER.get(line[1], len(_ORDER)))
    listed = "".join(_entry(*line) for line in lines)
    return html.section("At a glance", f"<dl>{listed}</dl>") if listed else ""


def _entry(name: str, tone: str, text: str, more: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{state(tone, text)}{quiet(more, ',')}</dd></div>"


def _run(run: RunView, *, alone: bool) -> Iterator[Line]:
    """Yields the lines of phase, step and newest checkpoint."""
    step = ""
    if run.step is not None:
        step = f"step {run.step:,.0f}{'' if run.total is None else f' of {run.total:,.0f}'}"
    yield f"Run {run.name}", run.tone, run.state, step
    if saved := newest(run.checkpoints):
        is_first = saved.age is None and saved.unsettled
        age = saved.unsettled if is_first else "none" if saved.age is None else ago(saved.age)
        step = SETTLING if is_first else saved.number(saved.step)
        tone = worst(one.tone for one in run.checkpoints)  # including checkpoints of another kind
        name = f"Checkpoint{'' if alone else f' of {run.name}'}"
        yield name, "warn" if run.unnamed else tone, age, run.unnamed or step


def newest(checkpoints: Iterable[CheckpointView]) -> CheckpointView | None:
    """Returns the checkpoint that was saved last, of any kind; None without checkpoints."""
    oldest = float("inf")

    def rank(one: CheckpointView) -> tuple[float, bool]:
        return (oldest if one.age is None else one.age), not one.unsettled

    return min(checkpoints, key=rank, default=None)


def _workers(workers: Sequence[WorkerView]) -> Iterator[Line]:
    if not workers:
        return
    up = sum(worker.processes >= worker.expected and not worker.finished for worker in workers)
    finished = sum(worker.finished for worker in workers)
    wrong = [f"{one.name} {one.state}" for one in workers if one.tone in ("bad", "warn")]
    more = [f"{finished} finished"] if finished else []
    tone = worst(worker.tone for worker in workers)
    text = f"{up} of {len(workers)} up"
    if wrong:  # not "4 of 4 up" in red
        yield "Workers", tone, ", ".join(_first(wrong)), ", ".join([text, *more])
        return
    yield "Workers", tone, text, ", ".join(more)


def _servers(runs: Iterable[RunView]) -> Iterator[Line]:
    servers = [server for run in runs for server in run.servers]
    if not servers:
        return
    up = sum(server.up for server in servers)
    wrong = [f"{one.name} {one.reason.replace('_', ' ')}" for one in servers if not one.up]
    queued = sum(server.waiting or 0 for server in servers)
    busy = [f"{one.name} busy" for one in servers if one.up and one.reason == HealthReason.BUSY]
    more = ", ".join(_first([*wrong, *busy])) or f"{queued:,.0f} queued"
    yield "Inference", worst(one.tone for one in servers), f"{up} of {len(servers)} up", more


def _gpus(gpus: GpusView) -> Iterator[Line]:
    if not gpus.present:
        return
    up = sum(gpu.up for gpu in gpus.gpus)
    busy = [gpu.utilization for gpu in gpus.gpus if gpu.utilization is not None]
    more = list(gpus.problems)
    if busy:
        more.append(f"{sum(busy) / len(busy):.0%} busy")
    tone = "bad" if gpus.problems else worst(gpu.tone for gpu in gpus.gpus)
    yield "GPUs", tone, f"{up} of {max(len(gpus.gpus), gpus.expected):.0f} up", ", ".join(more)


def _remediator_lines(remediator: RemediatorStatus | str | None, *, now: float) -> Iterator[Line]:
    if remediator is None:
        return
    if isinstance(remediator, str):
        yield "Remediator", "warn", "no answer", remediator
        yield "Alerts", "warn", "not known", ""
        return
    yield "Alerts", *alert_summary(remediator)
    yield "Last action", *action_summary(remediator, now=now)


def _memory(host: HostView) -> Iterator[Line]:
    if host.available is not None:
        more = "" if host.total is None else f"of {format_size(host.total)}"
        yield "Host memory", host.tone, f"{format_size(host.available)} free", more


def _disks(disks: Sequence[DiskView]) -> Iterator[Line]:
    """Yields a line for the disk with the least free space."""
    if not disks:
        return
    tone = worst(disk.tone for disk in disks)

    def left(disk: DiskView) -> tuple[bool, float]:
        return disk.tone != tone, (disk.free or 0) / disk.size if disk.size else 0.0

    first = min(disks, key=left)
    free = "" if first.free is None else f"{format_size(first.free)} free"
    text = first.state if first.tone != "good" or not free else free
    yield "Disk", tone, text, first.path if text == free else f"{first.path} {free}".strip()


def _first(names: Sequence[str]) -> list[str]:
    left = len(names) - MAX_NAMED
    return [*names[:MAX_NAMED], *([f"{left} more"] if left > 0 else [])]


def worst(tones: Iterable[Tone]) -> Tone:
    """Returns the worst tone; `quiet` if all are."""
    given = set(tones)
    return next((tone for tone in _WORST if tone in given), "quiet")
