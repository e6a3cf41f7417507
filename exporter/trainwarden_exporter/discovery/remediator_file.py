"""Renders a remediator.yml for proposed runs: one target per worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwarden_exporter.discovery.processes import Candidate
from trainwarden_exporter.discovery.proposal import Proposal, ProposedRun, ProposedWorker
from trainwarden_exporter.discovery.yaml_writer import comment_lines, flow

_HEAD = """\
# Proposed by `trainwarden discover` for this host. Review before use: a target is what the
# remediator may restart, and `start` must resume from the newest checkpoint.
mode: observe  # decide and record only; set `act` when the journal satisfies you
token_file: secrets/webhook-token  # `make up` creates it when it is missing
journal: state/journal.db
hold_file: state/hold
exporter: {config: exporter.yml}
"""


def render_remediator(proposal: Proposal) -> str:
    """Returns the file. Targets whose start command is unknown are comments."""
    targets = [
        line for run in proposal.runs for worker in run.workers for line in _target(run, worker)
    ]
    is_empty = not any(line.startswith("  -") for line in targets)
    head = "targets: []" if is_empty else "targets:"
    return "\n".join([_HEAD, head, *targets]) + "\n"


def _target(run: ProposedRun, worker: ProposedWorker) -> Iterator[str]:
    first = worker.selected.candidates[0]
    names = {"run": run.name, "worker": worker.selected.name}
    if unit := _unit(first):
        yield f"  - {flow(names | {'systemd': {'unit': unit}})}"
        return
    why = _unknown_start(worker)
    if why:
        yield from comment_lines(f"{flow(names)}: {why}.", indent=2)
        return
    yield f"  - run: {flow(run.name)}"
    yield f"    worker: {flow(worker.selected.name)}"
    yield "    process:"
    yield "      # As it runs now; if a script started it, name the script."
    yield f"      start: {flow(list(first.arguments))}"
    # where it was started: the process may have changed its folder since
    folder = worker.selected.conditions.get("cwd") or first.folder
    method: dict[str, Any] = {"cwd": str(folder)} if folder else {}
    output = next(iter(first.written[:1]), None)
    if output is not None:
        method["log"] = str(output)
    if first.user:
        method["user"] = first.user
    for key, value in method.items():
        yield f"      {key}: {flow(value)}"


def _unit(candidate: Candidate) -> str:
    """Returns the systemd service of the process; empty if it has none."""
    return next((one for one in candidate.cgroup.split("/") if one.endswith(".service")), "")


def _unknown_start(worker: ProposedWorker) -> str:
    """Returns why the start command is unknown; empty if it is known."""
    candidates = worker.selected.candidates
    if candidates[0].cgroup:
        return "in a container or job: restart it by its manager (docker, kubernetes, slurm)"
    if len(candidates) > 1:
        return "several processes: name the command that starts all of them"
    if len(candidates[0].arguments) == 1 and " " in candidates[0].arguments[0]:
        return "the process has set its own title, so its command line is unknown"
    if worker.selected.unclear:
        return "its selector matches other processes too"
    return ""
