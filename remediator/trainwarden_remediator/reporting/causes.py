"""What probably caused an incident, by what was found beside it. Pure.

Told in the order of how much it says: what the decisions found in the way, how the box stood, what
the logs say, what else went wrong at that time, and last what such an alert usually comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwarden_exporter.layouts.troubles import SHARED
from trainwarden_exporter.wording import plural, size
from trainwarden_remediator.playbooks import PLAYBOOKS, Trouble
from trainwarden_remediator.reporting.account import Account, Piece
from trainwarden_remediator.reporting.markdown import code, text
from trainwarden_remediator.reporting.times import Times, took

_PATTERNS = {pattern.name: re.compile(pattern.regex) for pattern in SHARED}
_GENERAL = "exception"
_RAISED = re.compile(r"^(?:\S{0,60}\s){0,6}?[\w.]*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")

_FOUND_IN_THE_WAY = {
    "explained": "It was explained by something else",
    "disk_trouble": "The disk stood in the way",
    "held_by_alert": "It was held because of another alert",
    "no_checkpoint": "There was no complete checkpoint to resume from",
    "recovery_mismatch": "The record to resume from did not fit the checkpoint",
    "restarts_fruitless": "Restarting brought it no further",
    "already_restarted": "Something else had restarted it already",
    "breaker_open": "The breaker had opened",
}

_USUALLY: Mapping[Trouble, str] = {
    Trouble.OVER_MEMORY_LIMIT: "A restart frees the memory and leaves the leak: if it grows back at"
    " the same pace, look for what the process keeps (batches, graphs, caches, open results); if it"
    " came in one step, for a larger batch or a longer sequence.",
    Trouble.MISSING: "The process ended by itself: the last lines of its log say why, or, where"
    " they stop in the middle, it was killed (out of memory, a person, the platform).",
    Trouble.OVER_AGE_LIMIT: "Nothing had failed: it was recycled because of its age, before what it"
    " leaks could do harm.",
    Trouble.MEMORY_BELOW_FLOOR: "The box ran short of memory. The largest worker was relieved of"
    " its own, which need not be the one that is to blame: compare the processes below.",
    Trouble.GPU_HELD: "Processes of an earlier run had outlived it and held the GPU: children that"
    " were not ended with their parent, or a container that was restarted around them.",
    Trouble.INFERENCE_DOWN: "The server had died or hung. Its own log comes first; then memory (of"
    " the GPU and of the box), and the last change of weights before it.",
    Trouble.NO_PROGRESS: "The trainer lived and made no steps: it waited (for rollouts, a lock, a"
    " collective), or hung. Where all parts were up, look at what it waited for.",
    Trouble.BRAKING: "The worker's own brake ended trial after trial and could not free what the"
    " worker itself held: it leaks.",
}


def causes(account: Account, times: Times) -> Sequence[str]:
    """Likely causes, each one line of Markdown, the most telling first."""
    found = [*_in_the_way(account)]
    for piece in account.evidence[:1]:  # the later ones are of what had been done already
        found += [*_of_box(piece, times), *_of_logs(piece)]
    found += _beside(account)
    if usual := usually(account.remediation):
        found.append(f"Usually: {usual}")
    return list(dict.fromkeys(found))


def usually(remediation: str) -> str:
    """What such trouble mostly comes from; nothing for a playbook of the user's own."""
    playbook = PLAYBOOKS.get(remediation)
    return "" if playbook is None else _USUALLY.get(playbook.trouble, "")


def _in_the_way(account: Account) -> Iterator[str]:
    for reason, detail in account.reasons:
        if reason in _FOUND_IN_THE_WAY:
            yield f"{_FOUND_IN_THE_WAY[reason]}{f': {text(detail)}' if detail else ''}."


def _of_logs(piece: Piece) -> Iterator[str]:
    for log in piece.logs:
        lines = [str(line) for line in log.get("lines", ())]
        hits = {
            name: matched
            for name, pattern in _PATTERNS.items()
            if (matched := [line for line in lines if pattern.search(line)])
        }
        if len(hits) > 1:
            hits.pop(_GENERAL, None)
        raised = [line for line in lines if _RAISED.match(line)]
        for name, matched in hits.items():
            said = raised[-1] if name == _GENERAL and raised else matched[-1]
            often = "once" if len(matched) == 1 else f"{len(matched)} times"
            yield (
                f"The log {code(str(log.get('name', '')))} tells of **{name.replace('_', ' ')}** "
                f"({often} in its last {plural(len(lines), 'line')}): {code(said.strip())}"
            )


def _of_box(piece: Piece, times: Times) -> Iterator[str]:
    memory = piece.content.get("memory", {})
    available, floor = memory.get("available"), memory.get("floor")
    if available is not None and floor is not None and available < floor:
        yield f"The box was short of memory: {size(available)} left, {size(floor)} should be."
    for name, worker in piece.seen("workers").items():
        yield from _of_worker(name, worker, piece.at)
    for name, server in piece.seen("servers").items():
        if not server.get("up") and server.get("reason"):
            since = server.get("since")
            when = "" if since is None else f", since {times.clock(since)}"
            why = text(str(server["reason"]))
            yield f"Inference server {code(name)} was not up: **{why}**{when}."
        elif server.get("failures"):
            yield f"Inference server {code(name)} was up and gave no token when asked for one."
    gpus = piece.content.get("gpus", {})
    orphans = [holder for holder in gpus.get("holders", ()) if holder.get("orphan")]
    for holder in orphans:
        yield f"A process of no worker held a GPU: {code(str(holder.get('is', '')))}"
    if gpus.get("lost"):
        yield f"A GPU did not answer: {text(', '.join(map(str, gpus['lost'])))}."
    for process in piece.content.get("processes", {}).get("tree", ()):
        if process.get("state") == "D":
            yield f"Process {process['pid']} waited in the kernel (state D): a disk or a driver."


def _of_worker(name: str, worker: Mapping[str, Any], at: float) -> Iterator[str]:
    limit, held = worker.get("memory_limit_bytes"), worker.get("resident_bytes", 0)
    if limit and held > limit:
        since = worker.get("started_at")
        age = f", {took(at - since)} after it was started" if since else ""
        yield f"Worker {code(name)} held {size(held)} of the {size(limit)} it may{age}."
    processes, expected = worker.get("processes", 0), worker.get("expected", 0)
    if processes < expected and not worker.get("finished"):
        yield f"Worker {code(name)} had {processes:g} of {expected:g} processes."


def _beside(account: Account) -> Iterator[str]:
    for other in account.others:
        earlier = account.starts_at - other.starts_at
        when = f"{took(abs(earlier))} {'before' if earlier > 0 else 'after'} this one"
        if abs(earlier) < 1:
            when = "together with this one"
        about = "/".join(part for part in (other.run, other.worker) if part)
        over = other.ended_at is not None and other.ended_at < account.starts_at
        kind = "Shortly before" if over else "May be its cause" if earlier > 0 else "Meanwhile"
        named = f" ({code(about)})" if about else ""
        yield f"{kind}: {text(other.alert)}{named}, incident {other.id}, began {when}."
