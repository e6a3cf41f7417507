"""Writes the proposed runs down as an exporter.yml, with the reasons beside them. Pure."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainwarden_exporter.discovery.box import Place
from trainwarden_exporter.discovery.lines import ProposedPattern
from trainwarden_exporter.discovery.programs import Program
from trainwarden_exporter.discovery.propose import ProposedLog, ProposedRun, ProposedWorker
from trainwarden_exporter.discovery.selectors import name_of
from trainwarden_exporter.discovery.traces import Numbered
from trainwarden_exporter.wording import printable

_LONGEST_COMMENT = 120


def render(runs: tuple[ProposedRun, ...], *, gpus: int = 0) -> str:
    """The file. Everything in it may be changed; what was not understood stands in a comment."""
    lines = [
        "# Proposed by `trainwarden-exporter discover` from what it saw on this box. Read it once:",
        "# names are yours to choose, and limits that an action hangs on are never guessed.",
        "state_folder: state",
    ]
    if gpus:
        lines.append(f"gpu: {{expected: {gpus}}}")
    if not runs:
        lines += ["", "# No run was found: start it first, or name its folder.", "runs: []"]
        return "\n".join(lines) + "\n"
    lines += ["", "runs:"]
    for run in runs:
        lines += _run(run)
    return "\n".join(lines) + "\n"


def _run(run: ProposedRun) -> Iterator[str]:
    yield f"  - name: {_flow(run.name)}"
    place = run.place
    if place is not None:
        yield from _place(place)
    yield from _section("workers", [line for worker in run.workers for line in _worker(worker)])
    if place is not None:
        work = {kind: [one for one in place.numbered if one.kind == kind] for kind in _KINDS}
        yield from _section(
            "checkpoints", [_entries(place, one) for one in work["checkpoints"] if _fits(one.path)]
        )
        moved = (*work["batches"], *work["weights"])
        yield from _section("rollouts", [_entries(place, one) for one in moved if _fits(one.path)])
    yield from _section("logs", [line for log in run.logs for line in _log(log, place)])
    yield from _section("inference", [line for one in run.workers for line in _server(one)])


_KINDS = ("checkpoints", "batches", "weights")


def _section(name: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"    {name}:"
        yield from lines


def _place(place: Place) -> Iterator[str]:
    recognised = place.recognised
    if recognised is None:
        yield "    # No framework was recognised: what lies there is described below."
    else:
        yield f"    framework: {recognised.layout.name}  # {recognised.layout.title}"
    yield f"    path: {_flow(printable(str(place.path)))}"
    if recognised is None:
        return
    names = {key: text for key, text in recognised.instance.names.items() if text}
    if names and recognised.instance.rivals:
        yield "    # Several runs lie here; this one changed last."
        yield f"    variables: {_flow(names)}"
    for note in recognised.layout.notes:
        yield from _comment(note, indent=4)


def _worker(worker: ProposedWorker) -> Iterator[str]:
    programs = worker.selected.programs
    first = programs[0]
    pids = " ".join(str(program.pid) for program in programs[:8])
    yield from _comment(f"pid {pids}: {first.command}", indent=6)
    yield f"      - name: {_flow(worker.selected.name)}"
    yield f"        role: {_flow(worker.role)}"
    yield f"        match: {_flow({'command': worker.selected.pattern})}"
    if len(programs) > 1:
        yield f"        expected: {len(programs)}"
    if worker.finishes:
        yield "        finishes: true  # one that ends with status 0 is not missed"
    yield "        # memory_limit: 8GiB  # above it, it is started anew"


def _entries(place: Place, work: Numbered) -> str:
    folder = work.path.relative_to(place.path)
    if work.marker:
        complete: dict[str, Any] = {"marker": [work.marker]}
    elif work.partial:
        complete = {"renamed": True}
    else:
        complete = {"settled": ["*"]} | ({"seconds": 5} if work.kind == "batches" else {})
    name = name_of(Program(0, (work.path.name,)))
    item: dict[str, Any] = {"name": name, "folder": glob.escape(str(folder)), "entry": work.entry}
    item["complete"] = complete
    if work.partial and work.kind == "checkpoints":  # unfinished rollouts are simply not yet there
        item["partial"] = work.partial
    if work.kind == "weights":
        item["carries"] = "weights"
    return "      - " + _flow(item)


def _fits(path: Path) -> bool:
    """Whether `path` can be written as a template: a brace in it would be taken for a name."""
    text = str(path)
    return not set("{}") & set(text) and printable(text) == text


def _log(log: ProposedLog, place: Place | None) -> Iterator[str]:
    path = log.seen.path
    inside = place is not None and path.is_relative_to(place.path)
    file = path.relative_to(place.path) if place is not None and inside else path
    if not _fits(file):
        yield from _comment(f"not to be written as a template: {file}", indent=6)
        return
    yield f"      - name: {_flow(log.name)}"
    yield f"        files: {_flow([glob.escape(str(file))])}"
    if log.worker is not None:
        yield f"        worker: {_flow(log.worker.selected.name)}"
    if log.seen.patterns:
        yield "        patterns:"
    for pattern in log.seen.patterns:
        yield from _comment(f"as in: {pattern.example}", indent=10)
        yield "          - " + _flow(_pattern(pattern))


def _pattern(pattern: ProposedPattern) -> Mapping[str, Any]:
    item: dict[str, Any] = {"name": pattern.name, "regex": pattern.regex}
    if pattern.phase is not None:
        item["phase"] = pattern.phase.value
    if pattern.values:
        item["values"] = list(pattern.values)
    return item


def _server(worker: ProposedWorker) -> Iterator[str]:
    name = worker.selected.name
    if worker.server is not None:
        url = f"http://127.0.0.1:{worker.server.port}"
        item = {"name": name, "engine": worker.server.engine, "url": url, "worker": name}
        yield "      - " + _flow(item)
    elif worker.serves:
        yield "      # Engine and address are read from its command line."
        yield "      - " + _flow({"name": name, "worker": name})


def _comment(text: str, *, indent: int) -> Iterator[str]:
    """One line; what a person wrote into a command line cannot end it."""
    plain = "".join(character if character.isprintable() else " " for character in printable(text))
    cut = plain if len(plain) <= _LONGEST_COMMENT else plain[: _LONGEST_COMMENT - 1] + "…"
    yield f"{' ' * indent}# {cut}"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(
        _escaped(value), default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _escaped(value: Any) -> Any:
    """A dollar sign would begin a variable of the environment."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return value
