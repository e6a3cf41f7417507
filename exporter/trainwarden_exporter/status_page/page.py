"""Status page: assembly of the sections."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from trainwarden_exporter.exceptions import Problem as ConfigProblem
from trainwarden_exporter.runtime.formatting import (
    format_duration,
    format_size,
    format_time,
    plural,
)
from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_exporter.scrape.scraper import Outcome, describe
from trainwarden_exporter.status_page.disks import build_disk_views, disk_section
from trainwarden_exporter.status_page.fragments import (
    UNKNOWN,
    amount,
    duration,
    number_columns,
    quiet,
    state,
    table,
    usage,
)
from trainwarden_exporter.status_page.gpus import build_gpus_view, gpu_section
from trainwarden_exporter.status_page.headline import Headline, summarize
from trainwarden_exporter.status_page.host import (
    HostView,
    WorkerView,
    build_host_view,
    build_worker_views,
)
from trainwarden_exporter.status_page.overview import Views, overview_section
from trainwarden_exporter.status_page.problems import (
    Problem,
    heartbeat_problems,
    host_problems,
    run_problems,
    waits_for_server,
    worker_problems,
)
from trainwarden_exporter.status_page.remediator import (
    first_steps,
    late_answer,
    remediator_section,
    with_standstills,
)
from trainwarden_exporter.status_page.remediator_client import RemediatorStatus
from trainwarden_exporter.status_page.run_text import describe_run
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.run_views_builder import (
    build_heartbeat_views,
    build_run_views,
)
from trainwarden_exporter.status_page.runs import heartbeat_table, run_section
from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.runbooks import FirstStep

MAX_PROBLEMS = 12


@dataclass(frozen=True, slots=True)
class PageData:
    """Content of the page. Times are Unix times."""

    now: float
    started: float
    path: Path | None
    reloaded: float
    outcomes: tuple[Outcome, ...]
    problems: tuple[ConfigProblem, ...] = ()
    web_config_loaded: bool | None = None
    remediator: RemediatorStatus | str | None = None
    """Status of the remediator, or why it is unavailable; None without a configured remediator."""
    links: Mapping[str, str] = field(default_factory=lambda: {"metrics": "metrics"})
    """Addresses by label."""
    refresh: bool = False
    """Whether the browser loads the page again and again."""


def render(page: PageData) -> str:
    """Returns the page as HTML. All external text is escaped."""
    seen = _views(page)
    headline = _headline(page, seen)
    sections = [
        html.first_steps(one.as_html for one in _first_steps(seen, headline.run)),
        _problems(headline),
        overview_section(seen, now=page.now),
        remediator_section(seen.remediator, now=page.now),
        _runs(seen.workers, seen.runs, page),
        html.section("Heartbeats", heartbeat_table(seen.heartbeats)) if seen.heartbeats else "",
        gpu_section(seen.gpus, now=page.now),
        html.section("Host", _host(seen.host, now=page.now)),
        disk_section(seen.disks),
        html.section("Collectors", _collectors(page.outcomes)),
        html.section("Configuration", _configuration(page)),
    ]
    return html.render(
        program="exporter",
        status=f"up {format_duration(page.now - page.started)}",
        tone=headline.tone,
        headline=headline.sentence,
        acts=(headline.who, headline.how),
        sections="\n".join(section for section in sections if section),
        now=page.now,
        links=page.links,
        refresh=page.refresh,
    )


def _first_steps(seen: Views, run: str) -> Sequence[FirstStep]:
    sound = {one.name: (one.finite_until, one.sound_checkpoint) for one in seen.runs}
    return first_steps(seen.remediator, run, sound)


def status_json(page: PageData) -> Mapping[str, Any]:
    """Returns what the page says in a few lines, as JSON data. Times are Unix seconds.

    `tone` is `good`, `warn` or `bad`; `remediator` is null without a configured one, and a text if
    it does not answer.
    """
    seen = _views(page)
    headline = _headline(page, seen)
    remediator = seen.remediator
    if isinstance(remediator, RemediatorStatus):
        remediator_data: Any = remediator.model_dump(exclude={"exporter_file", "workers_hash"})
        remediator_data["late"] = late_answer(remediator, now=page.now)
    else:
        remediator_data = remediator
    return {
        "host": socket.gethostname(),
        "seen_at": page.now,
        "tone": headline.tone,
        "headline": headline.sentence,
        "who_acts": headline.who,
        "how": headline.how,
        "first_steps": {one.label: one.step for one in _first_steps(seen, headline.run)},
        "problems": [
            {
                "tone": one.tone,
                "text": one.clause,
                "who_acts": one.who,
                "how": one.how,
                "run": one.run,
                "worker": one.worker,
                "alert": one.alert,
            }
            for one in headline.problems
        ],
        "runs": [{"run": run.name, "text": describe_run(run)} for run in seen.runs],
        "remediator": remediator_data,
    }


def _views(page: PageData) -> Views:
    runs = build_run_views(page.outcomes, now=page.now)
    names = [run.name for run in runs]
    return Views(
        runs,
        build_worker_views(page.outcomes, now=page.now),
        build_host_view(page.outcomes),
        build_gpus_view(page.outcomes),
        build_disk_views(page.outcomes),
        with_standstills(
            page.remediator, {run.name for run in runs if run.stands or waits_for_server(run)}
        ),
        build_heartbeat_views(page.outcomes, now=page.now, runs=names),
    )


def _headline(page: PageData, seen: Views) -> Headline:
    of_runs = [problem for run in seen.runs for problem in run_problems(run)]
    roomless = {one.run for one in of_runs if one.full}
    problems = (
        *worker_problems(seen.workers),
        *of_runs,
        *host_problems(seen.host, seen.gpus, seen.disks, roomless),
        *heartbeat_problems(seen.heartbeats),
        *_own_problems(page),
    )
    return summarize(problems, seen.runs, seen.remediator, workers=len(seen.workers))


def _problems(headline: Headline) -> str:
    """Returns the section with the problems that the headline does not name; empty without any."""
    others = headline.problems[1:]
    if not others:
        return ""
    listed = "".join(
        f'<li><span class="{one.tone}">{escape(one.clause)}</span>{quiet(one.who)}</li>'
        for one in others[:MAX_PROBLEMS]
    )
    left = len(others) - MAX_PROBLEMS
    more = f'<p class="quiet">and {left:,} more</p>' if left > 0 else ""
    return html.section("Other problems", f'<ul class="lines">{listed}</ul>{more}')


def _own_problems(page: PageData) -> Iterator[Problem]:
    """Yields problems of the monitoring itself."""
    if failed := [outcome.collector for outcome in page.outcomes if not outcome.success]:
        how = "A part of the host is not seen: Collectors, below, says why."
        yield Problem("bad", f"collectors failed: {', '.join(failed)}", who=YOU, how=how)
    how = "Configuration, below, says why."
    if page.problems:
        yield Problem("bad", "the configuration file is not in force", who=YOU, how=how)
    if page.web_config_loaded is False:
        yield Problem("bad", "the web configuration file is not in force", who=YOU, how=how)


def _runs(workers: Iterable[WorkerView], runs: Iterable[RunView], page: PageData) -> str:
    seen = {run.name: run for run in runs}
    members: dict[str, list[WorkerView]] = {name: [] for name in seen}
    for worker in workers:
        members.setdefault(worker.run, []).append(worker)
    if members:
        return "\n".join(
            run_section(seen.get(name, RunView(name)), _workers(of_it), now=page.now)
            for name, of_it in members.items()
        )
    failed = {outcome.collector for outcome in page.outcomes if not outcome.success}
    reason = (
        "Unknown: the collector <b>workers</b> failed."
        if "workers" in failed
        else "No workers are configured; only the host is observed."
    )
    return html.section("Runs", f'<p class="quiet">{reason}</p>')


def _workers(workers: Iterable[WorkerView]) -> str:
    return table(
        {
            "Worker": "name",
            "State": "text",
            "Memory": "memory",
            **number_columns("Processes", "Age", "CPU time", "Restarts"),
        },
        map(_worker, workers),
    )


def _worker(worker: WorkerView) -> tuple[str, ...]:
    of = "" if worker.age_limit is None else f"of {format_duration(worker.age_limit)}"
    return (
        f"{escape(worker.name)}{quiet(worker.role)}",
        state(worker.tone, worker.state),
        usage(worker.memory, worker.memory_limit, worker.memory_tone),
        f"{worker.processes:.0f} / {worker.expected:.0f}",
        f"{duration(worker.age)}{quiet(of)}",
        duration(worker.cpu),
        f"{amount(worker.restarts, '{:.0f}')}{quiet(worker.own_restarts)}",
    )


def _host(host: HostView, *, now: float) -> str:
    if host.total is None or host.available is None:
        return '<p class="quiet">Memory is unknown.</p>'
    floor, mark = "", None
    if host.floor is not None:
        floor = f", floor {format_size(host.floor)}"
        mark = 1 - host.floor / host.total
    line = (
        f"{format_size(host.available)} of memory available"
        f"{quiet(f'of {format_size(host.total)}{floor}')}"
    )
    facts: dict[str, str] = {}
    if host.load is not None and host.cpus is not None:
        facts["Load"] = f"{host.load:.2f} on {plural(int(host.cpus), 'CPU')}"
    if host.swap_total:
        used = host.swap_total - (host.swap_free or 0)
        facts["Swap used"] = f"{format_size(used)} of {format_size(host.swap_total)}"
    if host.oom_kills is not None:
        facts["OOM kills since boot"] = f"{host.oom_kills:.0f}"
    if host.booted is not None:
        facts["Up for"] = format_duration(now - host.booted)
    bar = html.bar(1 - host.available / host.total, host.tone, mark=mark)
    return f"<p>{line}</p>{bar}{html.facts(facts)}"


def _collectors(outcomes: Sequence[Outcome]) -> str:
    """Returns the table of collectors; collapsed while all succeed."""
    failed = sum(not outcome.success for outcome in outcomes)
    count = len(outcomes)
    summary = f"{failed} of {count} failed" if failed else f"all {count} succeeded"
    unfolded = " open" if failed else ""
    rows = table(
        {"Collector": "name", "State": "text", "Took": "number", "Error": "text"},
        map(_collector, outcomes),
    )
    return f"<details{unfolded}><summary>{summary}</summary>\n{rows}</details>"


def _collector(outcome: Outcome) -> tuple[str, ...]:
    return (
        escape(outcome.collector),
        state("good", "ok") if outcome.success else state("bad", "failed"),
        format_duration(outcome.duration),
        escape(describe(outcome.error)) if outcome.error else UNKNOWN,
    )


def _configuration(page: PageData) -> str:
    source = f"<code>{escape(str(page.path))}</code>" if page.path else "Defaults"
    lines = [f"<p>{source}, in force since {format_time(page.reloaded)}.</p>"]
    if page.problems:
        listed = "".join(f"<li>{escape(str(problem))}</li>" for problem in page.problems)
        lines.append(
            '<p class="bad">The last reload failed; the previous configuration stays in force.</p>'
            f'<ul class="problems">{listed}</ul>'
        )
    if page.web_config_loaded is not None:
        tone, word = ("quiet", "in force") if page.web_config_loaded else ("bad", "broken")
        lines.append(f'<p class="{tone}">The web configuration file is {word}.</p>')
    return "\n".join(lines)
