"""A run on the status page: what it does, how far it is, and all that belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from trainwarden_exporter import wording
from trainwarden_exporter.progress.sightings import (
    CheckpointSighting,
    ContainerSighting,
    HeartbeatSighting,
    RolloutSighting,
    RunSighting,
    ServerSighting,
)
from trainwarden_exporter.serving import page

_UNKNOWN = "&ndash;"
_MOST_TROUBLES = 5


def run_section(run: RunSighting, workers: str, *, now: float) -> str:
    """The section of `run` as HTML; `workers` is the table of its workers."""
    parts = [
        _glance(run),
        _facts(run),
        workers,
        _servers(run.servers),
        _containers(run.containers),
        heartbeat_table(run.heartbeats),
        _troubles(run, now=now),
    ]
    return page.section(f"Run {run.name}", "\n".join(part for part in parts if part))


def heartbeat_table(heartbeats: Iterable[HeartbeatSighting]) -> str:
    """The heartbeats as an HTML table; nothing where there are none."""
    columns = {"Heartbeat": "", "State": ""}
    columns |= dict.fromkeys(("Last", "Expected", "Step"), "number")
    return _table(columns, (_heartbeat(one) for one in heartbeats))


def _glance(run: RunSighting) -> str:
    said = []
    if run.phase or run.finished:
        said.append(f'<span class="state {run.tone}">{escape(run.state)}</span>')
    if run.step is not None:
        of = "" if run.total is None else f' <span class="quiet">of {run.total:,.0f}</span>'
        said.append(f"step {run.step:,.0f}{of}")
    if not said:
        return ""
    bar = page.bar(run.step / run.total, "good") if run.step is not None and run.total else ""
    return f'<p class="glance">{" ".join(said)}</p>{bar}'


def _facts(run: RunSighting) -> str:
    facts = _pace(run)
    parts = [("Checkpoint", one.name, _checkpoint(one)) for one in run.checkpoints]
    parts += [("Rollouts", one.name, _rollout(one)) for one in run.rollouts]
    facts |= {_named(kind, name): fact for kind, name, fact in parts if fact is not None}
    if run.resumes:
        facts["Resumes"] = f"{run.resumes:.0f}"
        if run.resume_step is not None:
            facts["Resumes"] += _quiet(f"last from step {run.resume_step:,.0f}")
    listed = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts.items())
    return f"<dl>{listed}</dl>" if facts else ""


def _pace(run: RunSighting) -> dict[str, str]:
    facts = {"Framework": escape(run.framework)} if run.framework else {}
    if run.step_seconds is not None:
        facts["Step time"] = wording.span(run.step_seconds)
        if run.usual_seconds is not None:
            facts["Step time"] += _quiet(f"usually {wording.span(run.usual_seconds)}")
    if run.step_age is not None:
        facts["Last step"] = _ago(run.step_age)
    if run.silence is not None and run.stall_limit is not None:
        last = "Last step" if run.step_age == run.silence else "Last sign of progress"
        limit = f"stalled after {wording.span(round(run.stall_limit))}"
        facts[last] = _toned("bad" if run.stalled else "good", _ago(run.silence)) + _quiet(limit)
    return facts


def _checkpoint(seen: CheckpointSighting) -> str | None:
    said, more = [], []
    if seen.step is not None:
        said.append(f"step {seen.step:,.0f}")
    if seen.age is not None:
        said.append(_ago(seen.age))
    if seen.saving:
        of = "" if seen.incomplete_step is None else f" step {seen.incomplete_step:,.0f}"
        more.append(f"saving{of}")
    elif seen.incomplete_step is not None:
        more.append(f"step {seen.incomplete_step:,.0f} is incomplete")
    if seen.interval is not None:
        more.append(f"every {wording.span(round(seen.interval))}")
    if seen.left is not None:
        more.append(f"room for {seen.left:,.0f} more")
    if not said and not more:
        return None
    return _toned(seen.tone, ", ".join(said) or "none") + _quiet(", ".join(more))


def _rollout(seen: RolloutSighting) -> str | None:
    said = []
    if seen.step is not None:
        said.append(f"step {seen.step:,.0f}")
    if seen.age is not None:
        said.append(_ago(seen.age))
    if seen.lag is not None:
        limit = "" if seen.lag_limit is None else f" of {seen.lag_limit:,.0f}"
        said.append(f"lag {seen.lag:,.0f}{limit}")
    return _toned(seen.tone, ", ".join(said)) if said else None


def _servers(servers: Iterable[ServerSighting]) -> str:
    columns = {"Inference server": "", "State": "", "KV cache": "memory"}
    columns |= dict.fromkeys(("Running", "Queued", "Weights"), "number")
    return _table(columns, (_server(one) for one in servers))


def _server(server: ServerSighting) -> str:
    state = server.reason.replace("_", " ") or ("up" if server.up else "down")
    since = "" if server.since is None else _quiet(f"for {wording.span(round(server.since))}")
    cache = _UNKNOWN
    if server.cache is not None:
        cache = f"{server.cache:.0%}{page.bar(server.cache, 'good')}"
    return "".join(
        (
            _name("Inference server", server.name, server.engine),
            _state(server.tone, state, since),
            f'<td class="memory" data-label="KV cache">{cache}</td>',
            page.number("Running", _amount(server.running)),
            page.number("Queued", _amount(server.waiting)),
            page.number("Weights", _amount(server.version)),
        )
    )


def _containers(containers: Iterable[ContainerSighting]) -> str:
    columns = {"Container": "", "State": ""}
    columns |= dict.fromkeys(("Starts in 10 min", "Last exit"), "number") | {"Last line": ""}
    return _table(columns, (_container(one) for one in containers))


def _container(container: ContainerSighting) -> str:
    health = "" if not container.health else _quiet(container.health)
    line = f"<code>{escape(container.last_line)}</code>" if container.last_line else _UNKNOWN
    return "".join(
        (
            _name("Container", container.name, kind="container"),
            _state(container.tone, container.state or "not known", health),
            page.number("Starts in 10 min", _amount(container.recent_starts)),
            page.number("Last exit", _amount(container.exit_code)),
            f'<td data-label="Last line"><span>{line}</span></td>',
        )
    )


def _heartbeat(beat: HeartbeatSighting) -> str:
    every = _UNKNOWN if beat.interval is None else f"within {wording.span(beat.interval)}"
    return "".join(
        (
            _name("Heartbeat", beat.name, kind="heartbeat"),
            _state(beat.tone, beat.state),
            page.number("Last", _UNKNOWN if beat.age is None else _ago(beat.age)),
            page.number("Expected", every),
            page.number("Step", _amount(beat.step)),
        )
    )


def _troubles(run: RunSighting, *, now: float) -> str:
    if not run.troubles:
        return ""
    listed = []
    for line in run.troubles[:_MOST_TROUBLES]:
        times = "" if line.count == 1 else f", {line.count:,} times"
        ago = _ago(max(0.0, now - line.timestamp))
        about = f"{escape(line.pattern)}{_quiet(f'in {line.log}{times}, last {ago}')}"
        listed.append(f"<li>{about}<code>{escape(line.line)}</code></li>")
    return f'<h3>Last lines of trouble</h3><ul class="lines">{"".join(listed)}</ul>'


def _table(columns: Mapping[str, str], cells: Iterable[str]) -> str:
    rows = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return page.table(columns, rows) if rows else ""


def _name(column: str, name: str, more: str = "", *, kind: str = "") -> str:
    """The cell with a name; on a phone, where a table has no head, with what it is the name of."""
    said = f"{escape(name)}{_quiet(more)}"
    if kind:
        said += f' <span class="quiet kind">{kind}</span>'
    return f'<td class="name" data-label="{column}"><span>{said}</span></td>'


def _state(tone: str, word: str, more: str = "") -> str:
    said = f'<span class="state {tone}">{escape(word)}</span>{more}'
    return f'<td data-label="State"><span>{said}</span></td>'


def _toned(tone: str, text: str) -> str:
    return text if tone == "good" else f'<span class="{tone}">{text}</span>'


def _quiet(text: str) -> str:
    return f' <span class="quiet">{escape(text)}</span>' if text else ""


def _named(kind: str, name: str) -> str:
    return kind if name == "default" else f"{kind} {escape(name)}"


def _ago(seconds: float) -> str:
    return f"{wording.span(round(seconds))} ago"


def _amount(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"
