"""Derives the likely causes of an incident from its evidence. Pure.

The first known fact of the chain comes first: blocking reasons of the decisions, the ends of
processes, the state of the host, the logs, other incidents of that time. The usual cause of such an
alert is last, where no end explains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwarden_exporter.frameworks.error_lines import (
    COMMON_ERROR_PATTERNS,
    TRACEBACK,
    exception_lines,
)
from trainwarden_exporter.runtime.formatting import format_size, plural
from trainwarden_remediator.config.playbooks import PLAYBOOKS, Condition
from trainwarden_remediator.journal.evidence_text import (
    held_memory,
    is_missing,
    process_ends,
    proved_wait,
)
from trainwarden_remediator.report.markdown import TimeFormat, code, format_elapsed, text
from trainwarden_remediator.report.model import EvidenceRecord, IncidentRecord

_BLOCKING_REASONS = {
    "root_cause_elsewhere": "The root cause was elsewhere",
    "disk_unusable": "A disk was unusable",
    "at_prompt": "The run waited for an operator at a prompt",
    "suspended": "An operator had stopped a process of it",
    "at_work": "Its inference server was at work on a request",
    "held_by_alert": "Another alert blocked restarts",
    "last_step_made": "The run hung after its last step",
    "no_checkpoint": "There was no complete checkpoint to resume from",
    "recovery_mismatch": "The recovery record did not match the checkpoint",
    "damaged_resume": "The newest checkpoint could not be loaded",
    "largest_left_alone": "The worker that held the memory could not be restarted",
    "several_trainers": "The trainers of the run were several targets",
    "processes_differ": "Other processes matched than the worker's own",
    "config_differs": "Exporter and remediator did not use the same configuration",
    "restarts_without_progress": "Restarts brought no progress",
    "already_restarted": "Something else had already restarted the worker",
    "breaker_open": "The circuit breaker was open",
}

SEEN_SECONDS = 15.0
"""Within this time, two ends of a worker are one: the exporter sees it only at its next look."""

_USUAL_CAUSES: Mapping[Condition, str] = {
    Condition.OVER_MEMORY_LIMIT: "A restart frees the memory but does not fix the leak. If memory"
    " grows back at the same rate, check what the process retains (batches, graphs, caches, open"
    " results); if it grew in one step, check for a larger batch or a longer sequence.",
    Condition.MISSING: "The process exited: the last lines of its log show why. If they stop"
    " abruptly, it was killed (out of memory, an operator, the platform).",
    Condition.OVER_AGE_LIMIT: "No failure: the worker was recycled because of its age, before its"
    " leaks could do harm.",
    Condition.MEMORY_BELOW_FLOOR: "The host ran short of memory. The largest worker was restarted,"
    " which need not be the cause: compare the processes below.",
    Condition.GPU_HELD: "Processes survived an earlier run and held the GPU: children that were not"
    " terminated with their parent, or processes outside a restarted container.",
    Condition.INFERENCE_DOWN: "The server died or hung. Check its own log first, then memory (of"
    " the GPU and of the host) and the last weight update before it.",
    Condition.NO_PROGRESS: "The trainer was alive but made no steps: it waited (for rollouts, a"
    " lock, a collective) or hung. If all parts were up, check what it waited for.",
    Condition.BRAKING: "The worker's own emergency brake aborted its work repeatedly without"
    " freeing the memory of the worker itself: the worker leaks.",
}


def likely_causes(incident: IncidentRecord, times: TimeFormat) -> Sequence[str]:
    """Returns the likely causes, each one line of Markdown, the most specific first."""
    ends = [*_ends(incident, times)]
    found = [*_blocking_reasons(incident), *ends]
    began_with_end = False
    for record in incident.evidence[:1]:  # later evidence shows the effects of actions
        began_with_end = bool(process_ends(record.content))
        found += [*_from_host(record, times), *_from_logs(record)]
    found += _from_related_incidents(incident)
    wait = "" if began_with_end else _proved_wait(incident)
    if wait:
        found.insert(0, f"It stood still: {text(wait)}.")
    elif not ends and (usual := usual_cause(incident.remediation)):
        found.append(f"Usually: {usual}")
    return list(dict.fromkeys(found))


def usual_cause(remediation: str) -> str:
    """Returns the usual cause of such an alert; "" for a playbook that is not shipped."""
    playbook = PLAYBOOKS.get(remediation)
    return "" if playbook is None else _USUAL_CAUSES.get(playbook.condition, "")


def _proved_wait(incident: IncidentRecord) -> str:
    """Returns what the run waited for when it was proved to be stuck, or ""."""
    records = [one for one in incident.evidence if one.kind != "end"]
    if incident.now is not None and incident.resolved_at is None:
        records.append(incident.now)
    return next((wait for one in records if (wait := proved_wait(one.content))), "")


def _blocking_reasons(incident: IncidentRecord) -> Iterator[str]:
    own = {one.alert for one in incident.alerts}
    for reason, detail in incident.reasons:
        if reason in _BLOCKING_REASONS and detail not in own:
            yield f"{_BLOCKING_REASONS[reason]}{f': {text(detail)}' if detail else ''}."


def _ends(incident: IncidentRecord, times: TimeFormat) -> Iterator[str]:
    """Yields each way in which a worker ended, with all the times, but not what an action ended."""
    found: dict[tuple[str, str], list[float]] = {}
    records = [one.content for one in incident.evidence if one.kind != "end"]
    for end in (end for content in records for end in process_ends(content)):
        known = [at for (worker, _), ats in found.items() if worker == end.worker for at in ats]
        by_action = any(a.at <= end.at <= (a.result_at or end.at) for a in incident.repairs)
        if not by_action and all(abs(end.at - at) > SEEN_SECONDS for at in known):
            found.setdefault((end.worker, end.how), []).append(end.at)
    for (worker, described), ats in found.items():
        how, _, remark = described.partition("; ")
        more = f"; {remark}" if remark else ""
        *others, last = map(times.clock, ats)
        at = f"{', '.join(others)} and {last}" if others else last
        yield f"Worker {code(worker)} {how} at {at}{more}."


def _from_logs(record: EvidenceRecord) -> Iterator[str]:
    for log in record.logs:
        lines = [str(line) for line in log.get("lines", ())]
        hits = {
            one.name: matched
            for one in COMMON_ERROR_PATTERNS
            if (matched := [line for line in lines if re.search(one.regex, line)])
        }
        if len(hits) > 1:
            hits.pop(TRACEBACK, None)
        raised = list(exception_lines(lines))
        for name, matched in hits.items():
            shown = raised[-1] if name == TRACEBACK and raised else matched[-1]
            count = "once" if len(matched) == 1 else f"{len(matched)} times"
            yield (
                f"The log {code(str(log.get('name', '')))} shows **{name.replace('_', ' ')}** "
                f"({count} in its last {plural(len(lines), 'line')}): {code(shown.strip())}"
            )


def _from_host(record: EvidenceRecord, times: TimeFormat) -> Iterator[str]:
    memory = record.content.get("memory", {})
    available, floor = memory.get("available"), memory.get("floor")
    if available is not None and floor is not None and available < floor:
        left = f"{format_size(available)} available"
        yield f"The host was short of memory: {left}, the floor is {format_size(floor)}."
    for name, worker in record.exporter_facts("workers").items():
        yield from _from_worker(name, worker, record.at)
    for name, server in record.exporter_facts("servers").items():
        if not server.get("up") and server.get("reason"):
            since = server.get("since")
            when = "" if since is None else f", since {times.clock(since)}"
            why = text(str(server["reason"]))
            yield f"Inference server {code(name)} was not up: **{why}**{when}."
        elif server.get("failures"):
            yield f"Inference server {code(name)} was up but did not complete a token."
    gpus = record.content.get("gpus", {})
    orphans = [holder for holder in gpus.get("holders", ()) if holder.get("orphan")]
    for holder in orphans:
        yield f"A process of no worker held a GPU: {code(str(holder.get('is', '')))}"
    if gpus.get("lost"):
        yield f"A GPU did not respond: {text(', '.join(map(str, gpus['lost'])))}."
    for process in record.content.get("processes", {}).get("tree", ()):
        if process.get("state") == "D":
            yield f"Process {process['pid']} was blocked in the kernel (state D: disk or driver)."


def _from_worker(name: str, worker: Mapping[str, Any], at: float) -> Iterator[str]:
    limit, held = worker.get("memory_limit_bytes"), held_memory(worker)
    if limit and held > limit:
        since = worker.get("started_at")
        age = f", {format_elapsed(at - since)} after its start" if since else ""
        amount = f"{format_size(held)}, above its limit of {format_size(limit)}"
        yield f"Worker {code(name)} used {amount}{age}."
    if is_missing(worker) and "last_exit_code" not in worker:
        processes, expected = worker.get("processes", 0), worker["expected"]
        yield f"Worker {code(name)} had {processes:g} of {expected:g} processes."


def _from_related_incidents(incident: IncidentRecord) -> Iterator[str]:
    for other in incident.related:
        earlier = incident.starts_at - other.starts_at
        when = f"{format_elapsed(abs(earlier))} {'before' if earlier > 0 else 'after'} this one"
        if abs(earlier) < 1:
            when = "at the same time"
        subject = "/".join(part for part in (other.run, other.worker) if part)
        over = other.ended_at is not None and other.ended_at < incident.starts_at
        kind = "Shortly before" if over else "Possible cause" if earlier > 0 else "Meanwhile"
        named = f" ({code(subject)})" if subject else ""
        yield f"{kind}: {text(other.alert)}{named}, incident {other.id}, began {when}."
