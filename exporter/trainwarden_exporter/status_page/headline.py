"""Status page: the headline. It names what is wrong, who acts, and what is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.processes.typed_commands import start_again
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.runtime.responsibility import (
    HELD_BY_ALERT,
    LINE_SECONDS,
    MAKE_ROOM,
    NOBODY,
    OF_STANDSTILL,
    REMEDIATOR,
    STALL,
    STALL_HANDLINGS,
    YOU,
    as_sentence,
    before_alert,
    nothing_yet,
    rank,
    stall_handling,
    urgency,
    with_limit,
)
from trainwarden_exporter.status_page.problems import Problem
from trainwarden_exporter.status_page.remediator_client import (
    RemediatorAlert,
    RemediatorStatus,
    subject,
)
from trainwarden_exporter.status_page.run_text import describe_run, run_verb
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.series import Tone

_ELSEWHERE = "the remediator may not restart it"
"""The remediator's reason where the `trainwarden run` of a command has ended, too."""
_NOT_RESTARTED = "Nobody starts it again: its trainwarden run has ended."

OVERDUE = "TrainingCheckpointOverdue"
_DISK = "TrainingDisk"
"""How the names of the alerts of disks begin."""
_AFTER_DISK = "Once there is room, it is restarted automatically."

LISTED_RUNS = 3
"""Most runs that are named, if all have finished."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The tone of the page (`good`, `warn` or `bad`), its summary, and the problems behind it."""

    tone: Tone
    sentence: str
    who: str
    """Who acts, in the words of `who_acts`."""
    how: str = ""
    """What is done, as a sentence."""
    problems: tuple[Problem, ...] = ()
    """What needs an operator first, then the worst first."""

    @property
    def run(self) -> str:
        """That of the first problem; "" if it is about none."""
        return self.problems[0].run if self.problems else ""


def summarize(
    problems: Iterable[Problem],
    runs: Sequence[RunView],
    remediator: RemediatorStatus | str | None,
    *,
    workers: int = 0,
) -> Headline:
    """Returns the headline; `workers` is their number, for a page without a run."""
    seen = tuple(_handled(one, remediator) for one in problems)
    found = [*seen, *_alerts_without_problem(seen, remediator)]
    if not found:
        return _without_problem(runs, remediator, workers)
    needed = remediator.operator_needed if isinstance(remediator, RemediatorStatus) else ""
    if needed and all(urgency(one.who) >= urgency(REMEDIATOR) for one in found):
        found.append(Problem("bad", needed.rstrip("."), who=YOU))
    found.sort(key=lambda one: (rank(one.who, one.tone), _place(one, remediator)))
    tones = [one.tone for one in found]
    if isinstance(remediator, RemediatorStatus):
        tones += [remediator.tone, *(alert.tone for alert in remediator.firing or ())]
    first, left = found[0], len(found) - 1
    more = f" And {left} more, below." if left else ""
    tone: Tone = "bad" if "bad" in tones else "warn"
    end = "" if first.clause.endswith("…") else "."
    return Headline(tone, f"{first.clause}{end}{more}", first.who, first.how, tuple(found))


def _place(problem: Problem, remediator: RemediatorStatus | str | None) -> int:
    """Returns the place of its first alert among those of the remediator's page, else the last."""
    firing = (isinstance(remediator, RemediatorStatus) and remediator.firing) or ()
    places = (at for at, one in enumerate(firing) if problem.concerns(one.run, one.worker))
    return next(places, len(firing))


def _alerts_without_problem(
    problems: Sequence[Problem], remediator: RemediatorStatus | str | None
) -> Iterator[Problem]:
    """Yields a problem for each alert and incident that no other problem explains."""
    if not isinstance(remediator, RemediatorStatus):
        return
    shown = set()
    for alert in remediator.firing or ():
        if alert.tone in ("bad", "warn") and not _is_explained(alert, problems):
            summary = f": {alert.summary.rstrip('.')}" if alert.summary else ""
            about, who = subject(alert.run, alert.worker), alert.who_acts
            clause = f"{alert.alert} fires on {about}{summary}"
            if who == NOBODY:  # what its summary says is over
                clause = f"{alert.alert} on {about} has not ended yet"
            how = as_sentence(who, alert.handling)
            if (clause, how) in shown:  # as of each receiver that is not reached
                continue
            shown.add((clause, how))
            key = alert.run, alert.worker
            yield Problem(alert.tone, clause, *key, who=who, how=how, alert=alert.alert)
    firing = {(one.alert, one.run, one.worker) for one in remediator.firing or ()}
    for incident in remediator.alerts:
        if incident.tone == "quiet" or (incident.alert, incident.run, incident.worker) in firing:
            continue
        if not any(one.concerns(incident.run, incident.worker) for one in problems):
            about = subject(incident.run, incident.worker)
            clause = f"{incident.alert} on {about} is open at the remediator"
            who, how = incident.who_acts, as_sentence(incident.who_acts, incident.handling)
            about_it = incident.run, incident.worker
            yield Problem(incident.tone, clause, *about_it, who=who, how=how)


def _is_explained(alert: RemediatorAlert, problems: Sequence[Problem]) -> bool:
    """Whether the alert belongs to a problem on which somebody acts no later than on it."""
    own = [
        one
        for one in problems
        if one.concerns(alert.run, alert.worker) and (not one.overdue or alert.alert == OVERDUE)
    ]
    if alert.alert in LINE_SECONDS or alert.handling == OF_STANDSTILL:
        return bool(own)
    return any(urgency(one.who) <= urgency(alert.who_acts) for one in own)


def _handled(problem: Problem, remediator: RemediatorStatus | str | None) -> Problem:
    """Returns the problem with who acts on it, and what is done."""
    if problem.who and not _is_contradicted(problem, remediator):
        return problem
    if remediator is None:
        who, how = YOU, "No remediator is configured."
    elif isinstance(remediator, str):
        who, how = YOU, _gone(remediator)
    else:
        who, how = _handling(problem, remediator)
    if problem.limit is not None:
        how = with_limit(how, problem.limit)
    if problem.how and how != _NOT_RESTARTED:  # it starts again, and that does not help
        how = f"{problem.how} {how}"
    elif problem.failed and who == YOU:
        how = " ".join(filter(None, (how, _start_it(problem, remediator), problem.dismissal)))
    return replace(problem, who=who, how=how)


def _is_contradicted(problem: Problem, remediator: RemediatorStatus | str | None) -> bool:
    """Whether an operator is needed for a command that starts itself again, as in a loop."""
    own = problem.failed and problem.who == NOBODY
    if not own or not isinstance(remediator, RemediatorStatus):
        return False
    known = _known(problem, remediator)
    return any(one.who_acts == YOU for one in known) or bool(_given_up(problem, remediator))


def _start_it(problem: Problem, remediator: RemediatorStatus | str | None) -> str:
    """Returns what starts a command again; "" where the first step of an alert has it."""
    command = problem.start_command
    if isinstance(remediator, RemediatorStatus) and _waits_for_disk(problem, remediator):
        return _AFTER_DISK
    firing = remediator.firing or () if isinstance(remediator, RemediatorStatus) else ()
    shown = any(command in alert.first_step for alert in firing)
    return start_again(command) if command and not shown else ""


def _waits_for_disk(problem: Problem, remediator: RemediatorStatus) -> bool:
    """Whether an operator only mends a disk, after which the remediator restarts the command."""
    yours = [one.alert for one in _known(problem, remediator) if one.who_acts == YOU]
    able = f"{problem.run}/{problem.worker}" in (remediator.may_restart or ())
    able = able and remediator.mode == "act" and not _given_up(problem, remediator)
    return able and bool(yours) and all(one.startswith(_DISK) for one in yours)


def _handling(problem: Problem, remediator: RemediatorStatus) -> tuple[str, str]:
    known = _known(problem, remediator)
    if found := _held_or_in_progress(problem, remediator, known):
        return found
    if remediator.firing is None:
        return YOU, f"Alerts are not known: {_why_not_known(remediator)}."
    needed = any(one.who_acts == YOU for one in known)
    if not needed and (name := _given_up(problem, remediator)):
        return YOU, f"The remediator gave up on {name}."
    if not known:
        if (needs := remediator.operator_needed) and not _of_another(problem, remediator):
            return YOU, needs
        return _before_an_alert(problem, remediator)
    first = min(known, key=lambda one: urgency(one.who_acts))
    if problem.failed and _ELSEWHERE in first.handling:
        return YOU, _NOT_RESTARTED
    return first.who_acts, as_sentence(first.who_acts, first.handling)


def _known(problem: Problem, remediator: RemediatorStatus) -> Sequence[RemediatorAlert]:
    """Returns the alerts and open incidents that the problem belongs to."""
    known = [
        one
        for one in (*(remediator.firing or ()), *remediator.alerts)
        if one.tone != "quiet" and problem.concerns(one.run, one.worker)
        if one.handling != OF_STANDSTILL
    ]
    if problem.stands and any(one.alert == STALL for one in known):
        return [one for one in known if one.alert == STALL]
    if problem.full:
        return [one for one in known if one.alert.startswith(_DISK)]
    if problem.gone or problem.stalled:  # the fault that an error line is a sign of
        known = [one for one in known if one.alert not in LINE_SECONDS]
    if not problem.gone:
        return known
    # Of a worker that is gone, what nobody needs to act on is an earlier fault, and so is a stall.
    known = [one for one in known if one.who_acts != NOBODY and one.handling not in STALL_HANDLINGS]
    # What waits for the end of another alert says less than that one.
    blocking = [one for one in known if HELD_BY_ALERT not in one.handling]
    return blocking if any(one.who_acts == YOU for one in blocking) else known


def _held_or_in_progress(
    problem: Problem, remediator: RemediatorStatus, known: Sequence[RemediatorAlert]
) -> tuple[str, str] | None:
    # No action follows the end of a hold where only you act, or nobody else can start it.
    yours = bool(known) and all(one.who_acts == YOU for one in known)
    able = f"{problem.run}/{problem.worker}" in (remediator.may_restart or ())
    decides = not (yours or (problem.failed and not able))
    for hold in remediator.holds if decides else ():
        if hold.covers(problem.run, problem.worker):
            own = [one.handling for one in known if one.who_acts == hold.who_acts]
            return hold.who_acts, as_sentence(hold.who_acts, own[0] if own else hold.text)
    for action in remediator.actions:
        if action.in_progress and problem.concerns(action.run, action.worker):
            return REMEDIATOR, f"It {action.in_progress}."
    return None


def _given_up(problem: Problem, remediator: RemediatorStatus) -> str:
    """Returns the worker that was given up, if the problem is the fault for which it was, else "".

    Its alert ends for a moment, and fires again, while the fault lasts.
    """
    if not (problem.gone or problem.stalled):
        return ""
    for name in remediator.given_up:
        run, _, worker = name.partition("/")
        if problem.concerns(run, worker):
            return name
    return ""


def _of_another(problem: Problem, remediator: RemediatorStatus) -> bool:
    """Whether an operator is needed only for workers that were given up, and for none of these."""
    names = [name for name in remediator.given_up if name in remediator.operator_needed]
    keys = (name.partition("/") for name in names)
    return bool(names) and not any(problem.concerns(run, worker) for run, _, worker in keys)


def _before_an_alert(problem: Problem, remediator: RemediatorStatus) -> tuple[str, str]:
    if problem.full:
        return YOU, f"The next save fails: {MAKE_ROOM}."
    due = problem.gone or problem.stalled or problem.over_limit
    if remediator.may_restart is None or not due:
        return NOBODY, nothing_yet(problem.limit)
    if problem.stalled:
        able = problem.run in remediator.may_restart_stalled
        unknown = problem.run in remediator.without_checkpoints
        who, handling = stall_handling(
            may_restart=able,
            mode=remediator.mode,
            without_checkpoints=unknown,
            calls=remediator.calls,
            last_step_made=problem.last_step_made,
        )
        return who, as_sentence(who, handling)
    worker = f"{problem.run}/{problem.worker}"
    may_restart = worker in remediator.may_restart
    if problem.failed and not may_restart:
        return YOU, _NOT_RESTARTED
    since = "it came over its limit" if problem.over_limit else "its end"
    who, handling = before_alert(worker, may_restart=may_restart, mode=remediator.mode, since=since)
    return who, as_sentence(who, handling)


def _without_problem(
    runs: Sequence[RunView], remediator: RemediatorStatus | str | None, workers: int
) -> Headline:
    up = "1 worker is up" if workers == 1 else f"{workers} workers are up"
    doing = "; ".join(_doing(runs)) or (up if workers else "no run is known")
    if remediator is None:
        return Headline("good", f"No problem is seen: {doing}. Alerts are not known.", NOBODY)
    if isinstance(remediator, str):
        how = f"No problem is seen: {doing}. Alerts are not known."
        return Headline("warn", _gone(remediator), YOU, how)
    if remediator.who_acts != NOBODY:
        tone: Tone = "bad" if remediator.tone == "bad" else "warn"
        how = f"{remediator.how} No problem is seen: {doing}.".strip()
        return Headline(tone, remediator.verdict, remediator.who_acts, how)
    observes = remediator.mode == "observe"
    mode = " The remediator only observes." if observes else " The mode is act."
    if remediator.firing_count:
        count = plural(remediator.firing_count, "alert")
        verb = "fires" if remediator.firing_count == 1 else "fire"
        sentence = f"{doing}. {count} for information {verb}.{mode}"
        return Headline("good", sentence, NOBODY)
    silent = any(run.quiet or run.stepless for run in runs)
    well = "No problem is seen yet" if silent else "All is well"
    return Headline("good", f"{well}: {doing}.{mode}", NOBODY)


def _doing(runs: Sequence[RunView]) -> Iterator[str]:
    """Yields what each run does; runs that have finished are counted beside the others."""
    finished = [run for run in runs if run.finished]
    if len(finished) == 1 or len(finished) == len(runs) <= LISTED_RUNS:
        yield from map(_briefly, runs)
        return
    yield from (_briefly(run) for run in runs if not run.finished)
    if finished:
        yield f"{len(finished)} runs have finished"


def _briefly(run: RunView) -> str:
    if run.stepless:
        return f"{run.name} {run_verb(run)}"
    shown = replace(run, outlived="")
    return describe_run(shown if run.quiet or run.ends else replace(shown, step_age=None))


def _gone(problem: str) -> str:
    return f"Nothing will be healed: the remediator does not answer ({problem})."


def _why_not_known(remediator: RemediatorStatus) -> str:
    return remediator.alerts_problem or "this remediator does not report them"
