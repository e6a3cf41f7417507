"""The status page: what the exporter sees at this moment, for a person with a browser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from trainwarden_exporter import wording
from trainwarden_exporter.core import Outcome, describe
from trainwarden_exporter.disk.sightings import DiskSighting, see_disks
from trainwarden_exporter.disk.status import disk_section
from trainwarden_exporter.exceptions import Problem
from trainwarden_exporter.glance import Sightings, glance_section
from trainwarden_exporter.gpu.sightings import GpusSighting, see_gpus
from trainwarden_exporter.gpu.status import gpu_section
from trainwarden_exporter.progress.seeing import see_heartbeats, see_runs
from trainwarden_exporter.progress.sightings import HeartbeatSighting, RunSighting
from trainwarden_exporter.progress.status import heartbeat_table, run_section
from trainwarden_exporter.remediation.status import remediation_section
from trainwarden_exporter.remediation.told import Told
from trainwarden_exporter.serving import page
from trainwarden_exporter.sightings import HostSighting, WorkerSighting, see_host, see_workers

_UNKNOWN = "&ndash;"
_NO_GPUS = GpusSighting()


@dataclass(frozen=True, slots=True)
class Status:
    """All that the page shows. Moments are Unix times."""

    now: float
    started: float
    path: Path | None
    reloaded: float
    outcomes: tuple[Outcome, ...]
    problems: tuple[Problem, ...] = ()
    web_file_successful: bool | None = None
    told: Told | str | None = None
    """What the remediator says, or why it says nothing; None where none is configured."""


def render(status: Status) -> str:
    """The page, as HTML. Whatever comes from outside is escaped."""
    workers = see_workers(status.outcomes, now=status.now)
    host = see_host(status.outcomes)
    gpus = see_gpus(status.outcomes)
    runs = see_runs(status.outcomes, now=status.now)
    disks = see_disks(status.outcomes)
    others = see_heartbeats(status.outcomes, now=status.now, runs=[run.name for run in runs])
    tone, verdict = judge(status, workers, host, gpus, runs=runs, heartbeats=others, disks=disks)
    seen = Sightings(runs, workers, host, gpus, disks, status.told)
    sections = [
        glance_section(seen, now=status.now),
        remediation_section(status.told, now=status.now),
        _runs(workers, runs, status),
        page.section("Heartbeats", heartbeat_table(others)) if others else "",
        gpu_section(gpus, now=status.now),
        page.section("Host", _host(host, now=status.now)),
        disk_section(disks),
        page.section("Collectors", _collectors(status.outcomes)),
        page.section("Configuration", _configuration(status)),
    ]
    return page.render(
        program="exporter",
        standing=f"up {wording.span(status.now - status.started)}",
        tone=tone,
        verdict=verdict,
        sections="\n".join(section for section in sections if section),
        footer=f"Seen at {wording.moment(status.now)}, afresh for this page.",
    )


def judge(
    status: Status,
    workers: Iterable[WorkerSighting],
    host: HostSighting,
    gpus: GpusSighting = _NO_GPUS,
    *,
    runs: Iterable[RunSighting] = (),
    heartbeats: Iterable[HeartbeatSighting] = (),
    disks: Iterable[DiskSighting] = (),
) -> tuple[str, str]:
    """The page in one sentence, and its tone: `good`, `warn` or `bad`."""
    workers, runs, disks = tuple(workers), tuple(runs), tuple(disks)
    said = []
    if troubled := [worker for worker in workers if worker.tone == "bad"]:
        said.append(f"{len(troubled)} of {wording.plural(len(workers), 'worker')} in trouble")
    if host.tone == "bad":
        said.append("memory is below its floor")
    said += (wrong for run in runs for wrong in run.wrong)
    said += (f"heartbeat {one.name} is missed" for one in heartbeats if one.missed)
    said += gpus.troubles
    said += (f"disk {disk.path}: {disk.state}" for disk in disks if disk.tone == "bad")
    said += _own_troubles(status)
    if said:
        sentence = "; ".join(said)
        return "bad", f"{sentence[0].upper()}{sentence[1:]}."
    if doubt := _doubt(status, workers, runs, disks):
        return "warn", doubt
    if workers:
        return "good", f"All is well: {wording.plural(len(workers), 'worker')}."
    return "good", "All is well."


def _own_troubles(status: Status) -> Iterator[str]:
    """What is wrong with the watch itself, each in a few words."""
    if isinstance(status.told, Told) and status.told.tone == "bad":
        yield f"remediator: {status.told.verdict.rstrip('.')}"
    if failed := [outcome.collector for outcome in status.outcomes if not outcome.success]:
        yield f"cannot see: {', '.join(failed)}"
    if status.problems:
        yield "the configuration file is not in force"
    if status.web_file_successful is False:
        yield "the web configuration file is not in force"


def _doubt(
    status: Status,
    workers: Iterable[WorkerSighting],
    runs: Iterable[RunSighting],
    disks: Iterable[DiskSighting],
) -> str:
    """What there is to keep an eye on, where nothing is wrong; nothing without that."""
    if watched := [worker for worker in workers if worker.tone == "warn"]:
        return f"{wording.plural(len(watched), 'worker')} to keep an eye on."
    doubtful = [run.name for run in runs if run.doubtful]
    doubtful += (f"disk {disk.path}" for disk in disks if disk.tone == "warn")
    if doubtful:
        return f"Keep an eye on {' and '.join(doubtful)}."
    told = status.told
    if isinstance(told, str):
        return "Nothing is wrong here, but the remediator cannot be asked."
    if told is not None and any(alert.tone != "quiet" for alert in told.alerts):
        return f"{wording.plural(told.open_alerts, 'alert')} open at the remediator."
    return ""


def _runs(workers: Iterable[WorkerSighting], runs: Iterable[RunSighting], status: Status) -> str:
    seen = {run.name: run for run in runs}
    members: dict[str, list[WorkerSighting]] = {name: [] for name in seen}
    for worker in workers:
        members.setdefault(worker.run, []).append(worker)
    if members:
        return "\n".join(
            run_section(seen.get(name, RunSighting(name)), _workers(of_it), now=status.now)
            for name, of_it in members.items()
        )
    failed = {outcome.collector for outcome in status.outcomes if not outcome.success}
    reason = (
        "They cannot be seen: the collector <b>workers</b> failed."
        if "workers" in failed
        else "None is configured, so only the host is watched."
    )
    return page.section("Runs", f'<p class="quiet">{reason}</p>')


def _workers(workers: Iterable[WorkerSighting]) -> str:
    columns = {"Worker": "", "State": "", "Memory": "memory"}
    columns |= dict.fromkeys(("Processes", "Age", "CPU time", "Restarts"), "number")
    rows = "\n".join(f"<tr>{_worker(worker)}</tr>" for worker in workers)
    return page.table(columns, rows) if rows else ""


def _worker(worker: WorkerSighting) -> str:
    role = f' <span class="quiet">{escape(worker.role)}</span>'
    memory = _UNKNOWN if worker.resident is None else wording.size(worker.resident)
    bar = ""
    if worker.resident is not None and worker.memory_limit:
        memory += f' <span class="quiet">of {wording.size(worker.memory_limit)}</span>'
        bar = page.bar(worker.resident / worker.memory_limit, worker.memory_tone)
    age = _UNKNOWN if worker.age is None else wording.span(round(worker.age))
    if worker.age_limit is not None:
        age += f' <span class="quiet">of {wording.span(worker.age_limit)}</span>'
    return "".join(
        (
            f'<td class="name" data-label="Worker"><span>{escape(worker.name)}{role}</span></td>',
            f'<td data-label="State"><span class="state {worker.tone}">{worker.state}</span></td>',
            f'<td class="memory" data-label="Memory">{memory}{bar}</td>',
            page.number("Processes", f"{worker.processes:.0f} / {worker.expected:.0f}"),
            page.number("Age", age),
            page.number(
                "CPU time", _UNKNOWN if worker.cpu is None else wording.span(round(worker.cpu))
            ),
            page.number(
                "Restarts", _UNKNOWN if worker.restarts is None else f"{worker.restarts:.0f}"
            ),
        )
    )


def _host(host: HostSighting, *, now: float) -> str:
    if host.total is None or host.available is None:
        return '<p class="quiet">Nothing is known of its memory.</p>'
    floor, mark = "", None
    if host.floor is not None:
        floor = f", floor {wording.size(host.floor)}"
        mark = 1 - host.floor / host.total
    line = (
        f"{wording.size(host.available)} of memory available "
        f'<span class="quiet">of {wording.size(host.total)}{floor}</span>'
    )
    facts: dict[str, str] = {}
    if host.load is not None and host.cpus is not None:
        facts["Load"] = f"{host.load:.2f} on {wording.plural(int(host.cpus), 'CPU')}"
    if host.swap_total:
        used = host.swap_total - (host.swap_free or 0)
        facts["Swap used"] = f"{wording.size(used)} of {wording.size(host.swap_total)}"
    if host.oom_kills is not None:
        facts["OOM kills"] = f"{host.oom_kills:.0f}"
    if host.booted is not None:
        facts["Up for"] = wording.span(now - host.booted)
    bar = page.bar(1 - host.available / host.total, host.tone, mark=mark)
    return f"<p>{line}</p>{bar}{page.facts(facts)}"


def _collectors(outcomes: Sequence[Outcome]) -> str:
    """Folded while all of them see; what failed is not to be looked for."""
    failed = sum(not outcome.success for outcome in outcomes)
    summary = f"{failed} of {len(outcomes)} failed" if failed else f"all {len(outcomes)} see"
    unfolded = " open" if failed else ""
    columns = {"Collector": "", "State": "", "Took": "number", "Error": ""}
    rows = "\n".join(f"<tr>{_collector(outcome)}</tr>" for outcome in outcomes)
    table = page.table(columns, rows)
    return f"<details{unfolded}><summary>{summary}</summary>\n{table}</details>"


def _collector(outcome: Outcome) -> str:
    tone, word = ("good", "ok") if outcome.success else ("bad", "failed")
    error = escape(describe(outcome.error)) if outcome.error else _UNKNOWN
    return "".join(
        (
            f'<td class="name" data-label="Collector">{escape(outcome.collector)}</td>',
            f'<td data-label="State"><span class="state {tone}">{word}</span></td>',
            page.number("Took", wording.span(outcome.duration)),
            f'<td data-label="Error">{error}</td>',
        )
    )


def _configuration(status: Status) -> str:
    source = f"<code>{escape(str(status.path))}</code>" if status.path else "The defaults"
    lines = [f"<p>{source}, in force since {wording.moment(status.reloaded)}.</p>"]
    if status.problems:
        listed = "".join(f"<li>{escape(str(problem))}</li>" for problem in status.problems)
        lines.append(
            '<p class="bad">The last reload failed; what was in force before still is.</p>'
            f'<ul class="problems">{listed}</ul>'
        )
    if status.web_file_successful is not None:
        tone, word = ("quiet", "in force") if status.web_file_successful else ("bad", "broken")
        lines.append(f'<p class="{tone}">The web configuration file is {word}.</p>')
    return "\n".join(lines)
