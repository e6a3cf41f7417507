"""Renders proposed runs as an exporter.yml with explanatory comments. Pure."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import yaml

from trainwarden_exporter.discovery.artifacts import Kind, StepFolder
from trainwarden_exporter.discovery.host_scan import RunFolder
from trainwarden_exporter.discovery.log_patterns import ProposedPattern
from trainwarden_exporter.discovery.processes import Candidate
from trainwarden_exporter.discovery.proposal import (
    Proposal,
    ProposedLog,
    ProposedRun,
    ProposedWorker,
)
from trainwarden_exporter.discovery.selectors import worker_name
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.runtime.formatting import format_size, printable

_LONGEST_COMMENT = 120


def render(proposal: Proposal, *, gpus: int = 0) -> str:
    """Returns the file. Everything in it may be changed; unrecognised parts are comments."""
    runs = proposal.runs
    lines = [
        "# Proposed by `trainwarden discover` for this host. Review before use:",
        "# names can be changed, and limits that trigger actions are never guessed.",
        "state_folder: state",
        "# Shown on the exporter's page. `trainwarden up` gives its exporter the real address.",
        "remediator: {url: 'http://127.0.0.1:10978'}",
    ]
    if gpus:
        lines.append(f"gpu: {{expected: {gpus}}}")
    if proposal.watched:
        names = ", ".join(proposal.watched)
        watched = f"Left out, as `trainwarden run` announces them and they are watched: {names}"
        lines += ["", *comment_lines(watched, indent=0)]
    if not runs:
        other = "other " if proposal.watched else ""
        lines += ["", f"# No {other}run was found: start it first, or pass its folder.", "runs: []"]
        return "\n".join([*lines, *_remarks(proposal)]) + "\n"
    lines += ["", "runs:"]
    for run in runs:
        lines += _run(run)
    return "\n".join([*lines, *_remarks(proposal)]) + "\n"


def _remarks(proposal: Proposal) -> Iterator[str]:
    """Yields comments on what is in no run."""
    if proposal.unclear:
        yield ""
        yield "# In no run, and not watched. Add to a run what belongs to it:"
    for candidate, reason in proposal.unclear:
        yield from comment_lines(f"- pid {candidate.pid}, {reason}: {candidate.command}", indent=0)
    for candidate in proposal.watchdogs:
        name = worker_name(candidate)
        run = proposal.runs[0].name if proposal.runs else ""
        yield ""
        yield from comment_lines(f"A watchdog, pid {candidate.pid}: {candidate.command}", indent=0)
        yield "# Let it touch a file at each round, and the file is watched in its place:"
        yield "# heartbeats:"
        item = {"name": name} | ({"run": run} if run else {})
        item |= {"file": f"/run/{name}.beat", "interval": "5m"}
        yield f"#   - {flow(item)}"


def _run(run: ProposedRun) -> Iterator[str]:
    yield f"  - name: {flow(run.name)}"
    run_folder = run.run_folder
    yield from _folder_lines(run_folder)
    yield from _section("workers", [line for worker in run.workers for line in _worker(worker)])
    entries: dict[Kind, list[str]] = {"checkpoints": [], "batches": [], "weights": []}
    names: set[str] = set()
    for one in run_folder.step_folders:
        if _fits(one.path):
            entries[one.kind].append(_entries(run_folder, one, names))
    yield from _section("checkpoints", entries["checkpoints"])
    yield from _section("rollouts", [*entries["batches"], *entries["weights"]])
    yield from _section("logs", [line for log in run.logs for line in _log(log, run_folder)])
    yield from _section("inference", [line for one in run.workers for line in _server(one)])


def _section(name: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"    {name}:"
        yield from lines


def _folder_lines(run_folder: RunFolder) -> Iterator[str]:
    detected = run_folder.detected
    framework = get_framework(run_folder.framework)
    if framework.name == "generic":
        yield "    # No framework was recognised: the files found are described below."
    else:
        yield f"    framework: {framework.name}  # {framework.title}"
    if run_folder.is_shared:
        yield "    # The working folder: arguments, script and files name no folder of its own."
    yield f"    path: {flow(printable(str(run_folder.path)))}"
    if detected is None:
        if framework.name != "generic":
            yield "    # None of its checkpoints or state files exists there yet."
        elif not run_folder.step_folders:
            yield "    # No checkpoints were found."
        return
    names = {key: text for key, text in detected.instance.names.items() if text}
    if names and detected.instance.other_recent_runs:
        yield "    # Several runs exist here; this one changed last."
        yield f"    variables: {flow(names)}"
    for note in detected.framework.notes:
        yield from comment_lines(note, indent=4)


def _worker(worker: ProposedWorker) -> Iterator[str]:
    candidates = worker.selected.candidates
    first = candidates[0]
    pids = " ".join(str(candidate.pid) for candidate in candidates[:8])
    yield from comment_lines(f"pid {pids}: {first.command}", indent=6)
    yield f"      - name: {flow(worker.selected.name)}"
    yield f"        role: {flow(worker.role)}"
    match = {"command": worker.selected.pattern, **worker.selected.conditions}
    yield f"        match: {flow(match)}"
    for other in worker.selected.unclear[:8]:
        yield from comment_lines(
            f"Not distinguishable from pid {other.pid}: give each its own option, or use pid_file",
            indent=8,
        )
    if len(candidates) > 1:
        yield f"        expected: {len(candidates)}"
    if worker.finishes:
        yield (
            "        finishes: true  # a process that ends with status 0 does not count as missing"
        )
    memory = sum(one.memory for one in candidates)
    peak = sum(one.memory_peak for one in candidates)
    if peak:
        used = f"{format_size(memory)} now, at most {format_size(peak)} since it started"
        yield f"        # memory without its children: {used}"
    yield "        # memory_limit: 8GiB  # above it, the worker is restarted"


def _entries(run_folder: RunFolder, work: StepFolder, names: set[str]) -> str:
    """Returns the entry of `work`, with a name that is not in `names`, and adds it."""
    folder = work.path.relative_to(run_folder.path)
    if work.marker:
        complete: dict[str, Any] = {"marker": [work.marker]}
    elif work.partial or work.renamed:
        complete = {"renamed": True}
    else:
        complete = {"settled": ["*"]} | ({"settled_for": 5} if work.kind == "batches" else {})
    base = worker_name(Candidate(0, (work.path.name,)))
    # folders of several subfolders may have the same name
    numbered = (f"{base}-{number}" for number in count(2))
    name = next(one for one in chain((base,), numbered) if one not in names)
    names.add(name)
    item: dict[str, Any] = {"name": name, "folder": glob.escape(str(folder)), "entry": work.entry}
    item["complete"] = complete
    if work.partial and work.kind == "checkpoints":  # unfinished rollouts simply do not exist yet
        item["partial"] = work.partial
    if work.kind == "weights":
        item["carries"] = "weights"
    return "      - " + flow(item)


def _fits(path: Path) -> bool:
    """Whether `path` can be written as a template: a brace would be parsed as a name."""
    text = str(path)
    return not set("{}") & set(text) and printable(text) == text


def _log(log: ProposedLog, run_folder: RunFolder) -> Iterator[str]:
    path = log.seen.path
    file = path.relative_to(run_folder.path) if path.is_relative_to(run_folder.path) else path
    if not _fits(file):
        yield from comment_lines(f"cannot be written as a template: {file}", indent=6)
        return
    yield f"      - name: {flow(log.name)}"
    yield f"        files: {flow([glob.escape(str(file))])}"
    if log.worker is not None:
        yield f"        worker: {flow(log.worker.selected.name)}"
    if log.seen.patterns:
        yield "        patterns:"
    for pattern in log.seen.patterns:
        yield from comment_lines(f"as in: {pattern.example}", indent=10)
        yield "          - " + flow(_pattern(pattern))


def _pattern(pattern: ProposedPattern) -> Mapping[str, Any]:
    item: dict[str, Any] = {"name": pattern.name, "regex": pattern.regex}
    if pattern.phase is not None:
        item["phase"] = pattern.phase.value
    if pattern.values:
        item["values"] = list(pattern.values)
    if pattern.error:
        item["error"] = True
    if pattern.resets:
        item["resets"] = pattern.resets
    return item


def _server(worker: ProposedWorker) -> Iterator[str]:
    name = worker.selected.name
    if worker.server is not None:
        url = f"http://127.0.0.1:{worker.server.port}"
        item = {"name": name, "engine": worker.server.engine, "url": url, "worker": name}
        yield "      - " + flow(item)
    elif worker.serves:
        yield "      # Engine and address are detected from its command line."
        yield "      - " + flow({"name": name, "worker": name})


def comment_lines(text: str, *, indent: int) -> Iterator[str]:
    """Yields one comment line; text from a command line cannot end it."""
    plain = "".join(character if character.isprintable() else " " for character in printable(text))
    cut = plain if len(plain) <= _LONGEST_COMMENT else plain[: _LONGEST_COMMENT - 1] + "…"
    yield f"{' ' * indent}# {cut}"


def flow(value: Any) -> str:
    """Returns `value` as YAML on one line, with dollar signs escaped."""
    text = yaml.safe_dump(
        _escaped(value), default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _escaped(value: Any) -> Any:
    """Escapes dollar signs, which would begin an environment variable."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return value
