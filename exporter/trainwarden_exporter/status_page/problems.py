"""Status page: what is wrong, as clauses that name who, what and how bad it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.inference.health_model import HealthReason
from trainwarden_exporter.processes.left_behind import describe_left_behind
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.typed_commands import dismissal, start_again
from trainwarden_exporter.runtime.formatting import format_duration, format_room, format_size
from trainwarden_exporter.runtime.responsibility import (
    NOBODY,
    NOT_FINITE_HANDLING,
    YOU,
    as_sentence,
    left_alone,
)
from trainwarden_exporter.status_page.disks import DiskView
from trainwarden_exporter.status_page.gpus import GpusView
from trainwarden_exporter.status_page.host import HostView, WorkerView
from trainwarden_exporter.status_page.part_views import (
    CheckpointView,
    ContainerView,
    HeartbeatView,
    ServerView,
)
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.series import Tone
from trainwarden_exporter.webserver.runbooks import NOTHING_SAVED


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: `run` and `worker` are its subject, empty for the host and for a whole run."""

    tone: Tone
    clause: str
    """Without a capital letter and a full stop."""
    run: str = ""
    worker: str = ""
    gone: bool = False
    """Whether processes of the worker are missing;"""
    failed: bool = False
    """and whether it is a command of `trainwarden run` that failed;"""
    start_command: str = ""
    """what starts such a command again, for a shell."""
    dismissal: str = ""
    """What ends the alerts of such a command, as a sentence."""
    over_limit: bool = False
    """Whether it is a worker that exceeds its memory limit: an alert is due."""
    stands: bool = False
    """Whether it is a run that stands still;"""
    stalled: bool = False
    """and whether it has stalled: an alert is due;"""
    limit: float | None = None
    """and the seconds without a step after which it is restarted at the latest, if known;"""
    last_step_made: bool = False
    """and whether it was its last step: it is never restarted."""
    who: str = ""
    """Who acts on it, in the words of `who_acts`;"""
    how: str = ""
    """and what is done, as a sentence."""
    alert: str = ""
    """The alert, of a problem that is nothing but an alert."""
    full: bool = False
    """Whether it is a disk on which the next save fails: an alert is due."""
    overdue: bool = False
    """Whether it is that a checkpoint is overdue, which is the fault behind no other alert."""

    def concerns(self, run: str, worker: str) -> bool:
        """Whether an alert or an action on this run and worker belongs to the problem."""
        return self.run == run and (not self.worker or not worker or self.worker == worker)


def worker_problems(workers: Sequence[WorkerView]) -> Iterator[Problem]:
    keys = [WorkerKey(worker.run, worker.name) for worker in workers]
    for worker in workers:
        if worker.tone in ("bad", "warn"):
            clause = f"{worker.run}/{worker.name} {_worker_state(worker)}"
            gone = bool(worker.failure) or worker.processes + worker.unconfirmed < worker.expected
            ended = bool(worker.left_behind or worker.perhaps_failed)
            gone = gone and not ended
            about, failed = (worker.run, worker.name), bool(worker.failure)
            restarts = f"Its trainwarden run starts it again (restarts: {worker.own_restarts})."
            how = restarts if worker.restarts_itself else ""
            who = NOBODY if how else YOU if ended else ""
            start, end = worker.start_command, dismissal(WorkerKey(*about), keys)
            if worker.perhaps_failed:
                how = " ".join(filter(None, ("Its log shows whether.", start_again(start), end)))
            end = end if failed else ""
            over = not gone and not ended and worker.memory_tone == "bad"
            one = Problem(worker.tone, clause, *about, gone, failed, start, end, who=who, how=how)
            yield replace(one, over_limit=over)


def run_problems(run: RunView) -> Iterator[Problem]:
    if run.stalled or run.late:
        unlimited = run.restart_limit == math.inf or run.last_step_made
        stands = Problem(
            *(run.tone, _standstill(run), run.name),
            stands=True,
            stalled=run.stalled,
            limit=None if unlimited else run.restart_limit,
            last_step_made=run.last_step_made,
        )
        how = as_sentence(YOU, left_alone(run.halted))
        yield replace(stands, who=YOU, how=how) if run.halted else stands
    if run.finished and run.finite_until is not None:
        last = f"step {run.finite_until:,.0f}, the last with a finite loss"
        clause = f"{run.name} has finished, and what it saved after {last}, is of no use"
        how = f"`trainwarden checkpoints {run.name}` names the checkpoint to start it again from."
        if run.sound_checkpoint is None:
            how = f"{NOTHING_SAVED.capitalize()}."
        yield Problem("bad", clause, run.name, who=YOU, how=how)
    for tone, clause, worker in _run_clauses(run):
        if tone in ("bad", "warn"):
            yield Problem(tone, clause, run.name, worker)
    yield from _checkpoint_problems(run)
    yield from heartbeat_problems(run.heartbeats, run.name)


def _run_clauses(run: RunView) -> Iterator[tuple[Tone, str, str]]:
    """Yields the tone, the description and the worker, if it is of one, of each part of the run.

    A good part has none to show.
    """
    waited_for = _waited_for(run) if run.stalled or run.late else ""
    for server in run.servers:
        if waited_for == server.name:
            continue  # the standstill names it
        yield server.tone, _server(run, server), server.worker
    for rollout in run.rollouts:
        lag = f"{rollout.lag or 0:,.0f} steps, limit {rollout.lag_limit or 0:,.0f}"
        yield rollout.tone, f"rollouts of {run.name} are behind ({lag})", ""
    for brake in run.brakes:
        clause = f"{brake.pattern} of {run.name} fired {brake.streak:,.0f} times in a row"
        yield brake.tone, f"{clause} (log {brake.log})", ""
    for container in run.containers:
        yield container.tone, f"container {container.name}: {_container(container)}", ""


def _checkpoint_problems(run: RunView) -> Iterator[Problem]:
    for checkpoint in run.checkpoints:
        # The standstill explains that it is overdue, but no lack of room, which may be its cause.
        explained = run.stalled or run.late or _is_of_outage(run, checkpoint)
        shown = replace(checkpoint, interval=None) if explained else checkpoint
        if run.finished:  # the problem of the whole run names the step
            shown = replace(shown, finite_until=None)
        if shown.tone in ("bad", "warn"):
            unusable = bool(shown.is_late or shown.resume_problem)
            overdue = shown.overdue and not unusable
            # while one is written, the oldest is perhaps not deleted yet
            in_save = shown.saving or shown.settling
            full = (shown.left or 0) < 1 and not (unusable or overdue or in_save)
            one = Problem(shown.tone, _checkpoint(run, shown), run.name, overdue=overdue)
            if (
                shown.is_late and not shown.resume_problem
            ):  # from the first look on: nothing heals it
                one = replace(one, who=YOU, how=as_sentence(YOU, NOT_FINITE_HANDLING))
            yield replace(one, tone="bad", full=True) if full else one


def waits_for_server(run: RunView) -> bool:
    """Whether a server of the run is down, which explains what else the run does not do."""
    down = any(server.tone == "bad" for server in run.servers)
    return down and all(_is_of_outage(run, one) for one in run.checkpoints if one.overdue)


def _is_of_outage(run: RunView, seen: CheckpointView) -> bool:
    """Whether a checkpoint was not long overdue when a server of the run went down."""
    down = [one.since for one in run.servers if one.tone == "bad" and one.since is not None]
    if not down or seen.age is None or seen.overdue_after is None:
        return False
    return seen.age - max(down) < 2 * seen.overdue_after


def heartbeat_problems(heartbeats: Iterable[HeartbeatView], run: str = "") -> Iterator[Problem]:
    for beat in heartbeats:
        if beat.tone in ("bad", "warn"):
            state = "missing" if beat.missed else "late"
            yield Problem(beat.tone, f"heartbeat {beat.name} is {state}", run)


def host_problems(
    host: HostView, gpus: GpusView, disks: Iterable[DiskView], roomless: Collection[str]
) -> Iterator[Problem]:
    """`roomless`: the runs whose next checkpoint does not fit."""
    if host.tone == "bad" and host.available is not None and host.floor is not None:
        amounts = f"{format_size(host.available)} available, floor {format_size(host.floor)}"
        yield Problem("bad", f"memory of the host is below its floor ({amounts})")
    for clause in gpus.problems:
        yield Problem("bad", clause)
    for disk in disks:
        if disk.tone in ("bad", "warn"):
            full = disk.full or not disk.runs.isdisjoint(roomless)
            yield Problem(disk.tone, f"disk {disk.path}: {disk.state}", full=full)


def _worker_state(worker: WorkerView) -> str:
    if worker.left_behind:
        return f"is not watched: {describe_left_behind(worker.left_behind)}"
    if worker.perhaps_failed:
        error = worker.perhaps_failed.rstrip(".")
        return f"has ended with exit status 0, and perhaps failed: {error}"
    if worker.failure:
        error = f": {worker.error.rstrip('.')}" if worker.error else ""
        return f"has failed ({worker.failure}){error}"
    if worker.processes < worker.expected:
        if not worker.processes:
            return "is not running"
        missing = worker.expected - worker.processes
        return f"has {missing:.0f} of {worker.expected:.0f} processes missing"
    if worker.memory_tone == "good" or worker.memory is None or worker.memory_limit is None:
        age, limit = format_duration(worker.age or 0), format_duration(worker.age_limit or 0)
        return f"is old ({age} of {limit})"
    preposition = "over" if worker.memory_tone == "bad" else "near"
    return f"is {preposition} its memory limit ({_share(worker.memory, worker.memory_limit)})"


def _share(size: float, limit: float) -> str:
    """Returns `178 of 150 MiB`."""
    amount, _, unit = format_size(size).partition(" ")
    limit_amount, _, limit_unit = format_size(limit).partition(" ")
    shown = amount if unit == limit_unit else f"{amount} {unit}"
    return f"{shown} of {limit_amount} {limit_unit}"


def _standstill(run: RunView) -> str:
    # The wait for a step, not for any sign of progress, is what the owner of the run counts.
    passed = max(run.step_age or 0, run.silence or 0)
    clause = f"{run.name} has made no step for {format_duration(round(passed))}"
    if run.last_step_made:
        ago = format_duration(round(passed))
        clause = f"{run.name} made its last step {ago} ago, and has not ended"
    elif run.usual_pace:
        clause += f" (usually {run.usual_pace})"
    saved = min((one.age for one in run.checkpoints if one.age is not None), default=passed)
    if saved + max(run.usual_report or 0, 1) < passed:  # not with its last step
        clause += f", though it saved {format_duration(round(saved))} ago"
    if server := _waited_for(run):
        return f"{clause}: it waits for its {_named(server)}, which is starting"
    if server := next((one.name for one in run.servers if one.reason == HealthReason.BUSY), ""):
        return f"{clause}: its {_named(server)} is busy with a request"
    if run.waits:
        return f"{clause}: {run.waits}"
    if run.phase == "waiting_for_rollouts":
        return f"{clause}: it waits for rollouts"
    return f"{clause}: phase {run.phase.replace('_', ' ')}" if run.phase else clause


def _waited_for(run: RunView) -> str:
    """Returns the name of the starting server that a run waits for, or ""."""
    starting = [one.name for one in run.servers if one.tone == "warn"]
    return starting[0] if starting and run.phase == "waiting_for_rollouts" else ""


def _named(server: str) -> str:
    """Returns `inference server vllm-0`; many have just this name."""
    return "inference server" if server == "server" else f"inference server {server}"


def _server(run: RunView, server: ServerView) -> str:
    reason = server.reason.replace("_", " ")
    state = f"is {reason}" if server.tone == "warn" else f"is down ({reason or 'no reason known'})"
    if reason == HealthReason.BUSY:
        state = "works and has not answered"
    since = "" if server.since is None else f" for {format_duration(round(server.since))}"
    return f"{_named(server.name)} of {run.name} {state}{since}"


def _container(container: ContainerView) -> str:
    if container.tone == "warn":
        return "restarts repeatedly"
    return "unhealthy" if container.health == "unhealthy" else container.state


def _checkpoint(run: RunView, seen: CheckpointView) -> str:
    if seen.resume_problem:
        return f"a resume of {run.name} would take a damaged checkpoint, {seen.resume_problem}"
    if seen.is_late:
        last = f"step {seen.finite_until:,.0f}, the last with a finite loss"
        loss = f"the loss of {run.name} {'was' if run.finished else 'is'} NaN or infinite"
        return f"{loss}: its newest checkpoint was saved after {last}"
    if seen.overdue and seen.age is not None and seen.overdue_after is not None:
        age, due = format_duration(round(seen.age)), format_duration(round(seen.overdue_after))
        return f"the newest checkpoint of {run.name} is {age} old (overdue after {due})"
    left = seen.left or 0
    only = "only " if left >= 1 else ""
    return f"there is room for {only}{format_room(left, 'more checkpoint')} of {run.name}"
