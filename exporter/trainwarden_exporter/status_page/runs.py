"""Status page: one run with its workers, servers, containers and logs."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from trainwarden_exporter.runtime.formatting import format_duration, format_room
from trainwarden_exporter.status_page.day import day_section
from trainwarden_exporter.status_page.fragments import (
    UNKNOWN,
    ago,
    amount,
    duration,
    number_columns,
    quiet,
    state,
    table,
    toned,
)
from trainwarden_exporter.status_page.part_views import (
    SETTLING,
    CheckpointView,
    ContainerView,
    HeartbeatView,
    RolloutView,
    ServerView,
)
from trainwarden_exporter.status_page.run_text import describe_run
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.webserver import html

_MAX_ERROR_LINES = 5


def run_section(run: RunView, workers: str, *, now: float) -> str:
    """Returns the HTML section of `run`; `workers` is the table of its workers."""
    parts = [
        _glance(run),
        f'<p class="bad">{escape(run.attempts)}.</p>' if run.attempts else "",
        f'<p class="warn">{escape(describe_run(run))}.</p>' if run.stepless else "",
        f"<p>{escape(run.outlived)}.</p>" if run.outlived else "",
        _facts(run),
        day_section(run.day, now),
        workers,
        _servers(run.servers),
        _containers(run.containers),
        heartbeat_table(run.heartbeats),
        _error_lines(run, now=now),
    ]
    return html.section(f"Run {run.name}", "\n".join(part for part in parts if part))


def heartbeat_table(heartbeats: Iterable[HeartbeatView]) -> str:
    """Returns the heartbeats as an HTML table; empty without heartbeats."""
    return table(
        {"Heartbeat": "name", "State": "text", **number_columns("Last", "Expected", "Step")},
        map(_heartbeat, heartbeats),
    )


def _glance(run: RunView) -> str:
    fragments = []
    if run.phase or run.finished or run.failure:
        fragments.append(state(run.tone, run.state))
    if run.step is not None:
        of = "" if run.total is None else quiet(f"of {run.total:,.0f}")
        fragments.append(f"step {run.step:,.0f}{of}")
    if not fragments:
        return ""
    bar = html.bar(run.step / run.total, "good") if run.step is not None and run.total else ""
    return f'<p class="glance">{" ".join(fragments)}</p>{bar}'


def _facts(run: RunView) -> str:
    facts = _pace(run)
    parts = [("Checkpoint", one.name, _checkpoint(one)) for one in run.checkpoints]
    parts += [("Rollouts", one.name, _rollout(one)) for one in run.rollouts]
    facts |= {_name_list(kind, name): fact for kind, name, fact in parts if fact is not None}
    if run.resumes:
        facts["Resumes"] = f"{run.resumes:.0f}"
        if run.resume_step is not None:
            facts["Resumes"] += quiet(f"last from step {run.resume_step:,.0f}")
    listed = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts.items())
    return f"<dl>{listed}</dl>" if facts else ""


def _pace(run: RunView) -> dict[str, str]:
    facts = {"Framework": escape(run.framework)} if run.framework else {}
    if run.step_seconds is not None:
        facts["Step time"] = format_duration(run.step_seconds)
        if run.usual_seconds is not None:
            facts["Step time"] += quiet(f"usually {format_duration(run.usual_seconds)}")
    if run.step_age is not None:
        facts["Last step"] = ago(run.step_age)
    if run.silence is not None and run.stall_limit is not None:
        last = "Last step" if run.step_age == run.silence else "Last sign of progress"
        tone = run.tone if run.stalled or run.late else "good"
        limit = (
            ""
            if run.stalled or run.ends
            else f"counts as stalled after {duration(run.stall_limit)}"
        )
        facts[last] = toned(tone, ago(run.silence)) + quiet(limit)
    return facts


def _checkpoint(seen: CheckpointView) -> str | None:
    fragments, more = _step_and_age(seen), []
    if seen.unsettled:
        if seen.age is None:
            fragments, more = [seen.unsettled], [SETTLING]
        else:
            more.append(f"{seen.unsettled} {SETTLING}")
    elif seen.saving:
        more.append(f"saving {seen.number(seen.incomplete_step)}".rstrip())
    elif seen.incomplete_step is not None:
        more.append(f"{seen.number(seen.incomplete_step)} is incomplete")
    if seen.is_late:
        more.append(f"saved after step {seen.finite_until:,.0f}, the last with a finite loss")
    due = seen.overdue_after
    # After a restart its age may be over the limit, which counts from the start of the trainer.
    ended = seen.finished or seen.trainer_gone
    if due is not None and not ended and (seen.overdue or (seen.age or 0) <= due):
        more.append(f"overdue after {duration(due)}")
    if seen.left is not None:
        more.append(f"room for {format_room(seen.left, 'more checkpoint')}")
    if not fragments and not more:
        return None
    return toned(seen.tone, ", ".join(fragments) or "none") + quiet(", ".join(more))


def _step_and_age(seen: CheckpointView | RolloutView) -> list[str]:
    unit = seen.unit if isinstance(seen, CheckpointView) else "step"
    step = [] if seen.step is None else [f"{unit} {seen.step:,.0f}"]
    return step if seen.age is None else [*step, ago(seen.age)]


def _rollout(seen: RolloutView) -> str | None:
    fragments = _step_and_age(seen)
    if seen.lag is not None:
        limit = "" if seen.lag_limit is None else f" of {seen.lag_limit:,.0f}"
        fragments.append(f"lag {seen.lag:,.0f}{limit}")
    return toned(seen.tone, ", ".join(fragments)) if fragments else None


def _servers(servers: Iterable[ServerView]) -> str:
    return table(
        {
            "Inference server": "name",
            "State": "text",
            "KV cache": "memory",
            **number_columns("Running", "Queued", "Weights"),
        },
        map(_server, servers),
    )


def _server(server: ServerView) -> tuple[str, ...]:
    word = server.reason.replace("_", " ") or ("up" if server.up else "down")
    since = "" if server.since is None else quiet(f"for {duration(server.since)}")
    cache = UNKNOWN
    if server.cache is not None:
        cache = f"{server.cache:.0%}{html.bar(server.cache, 'good')}"
    return (
        f"{escape(server.name)}{quiet(server.engine)}",
        f"{state(server.tone, word)}{since}",
        cache,
        amount(server.running),
        amount(server.waiting),
        amount(server.version),
    )


def _containers(containers: Iterable[ContainerView]) -> str:
    return table(
        {
            "Container": "name",
            "State": "text",
            **number_columns("Starts in 10 min", "Last exit"),
            "Last line": "text",
        },
        map(_container, containers),
    )


def _container(container: ContainerView) -> tuple[str, ...]:
    line = f"<code>{escape(container.last_line)}</code>" if container.last_line else UNKNOWN
    return (
        _name(container.name, "container"),
        f"{state(container.tone, container.state or 'not known')}{quiet(container.health)}",
        amount(container.recent_starts),
        amount(container.exit_code),
        line,
    )


def _heartbeat(beat: HeartbeatView) -> tuple[str, ...]:
    every = UNKNOWN if beat.interval is None else f"within {format_duration(beat.interval)}"
    return (
        _name(beat.name, "heartbeat"),
        state(beat.tone, beat.state),
        UNKNOWN if beat.age is None else ago(beat.age),
        every,
        amount(beat.step),
    )


def _name(name: str, kind: str) -> str:
    """Returns a name, with the kind that narrow screens show in place of the table's head."""
    return f'{escape(name)} <span class="quiet kind">{kind}</span>'


def _error_lines(run: RunView, *, now: float) -> str:
    if not run.error_lines:
        return ""
    listed = []
    for line in run.error_lines[:_MAX_ERROR_LINES]:
        times = "" if line.count == 1 else f", {line.count:,} times"
        where = quiet(f"in {line.log}{times}, last {ago(now - line.timestamp)}")
        listed.append(f"<li>{escape(line.pattern)}{where}<code>{escape(line.line)}</code></li>")
    return f'<h3>Last error lines</h3><ul class="lines">{"".join(listed)}</ul>'


def _name_list(kind: str, name: str) -> str:
    return kind if name == "default" else f"{kind} {escape(name)}"
