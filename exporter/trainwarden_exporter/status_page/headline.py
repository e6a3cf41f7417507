"""Status page: the headline. It names the worst problem, and who deals with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainwarden_exporter.runtime.formatting import format_duration, plural
from trainwarden_exporter.status_page.problems import Problem
from trainwarden_exporter.status_page.remediator_client import FiringAlert, RemediatorStatus
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.series import Tone

_ELSEWHERE = "the remediator may not restart it"
"""The remediator's reason where the `trainwarden run` of a command has ended, too."""
_NOBODY = (
    "Nobody starts it again: its trainwarden run has ended. With --restart on-failure, a command "
    "restarts after a failure."
)

_ORDER: Sequence[Tone] = ("bad", "warn", "quiet", "good")


@dataclass(frozen=True, slots=True)
class Headline:
    """The tone of the page (`good`, `warn` or `bad`), its summary, and the problems behind it."""

    tone: Tone
    sentence: str
    problems: tuple[Problem, ...] = ()
    """Worst first."""


def summarize(
    problems: Iterable[Problem],
    runs: Sequence[RunView],
    remediator: RemediatorStatus | str | None,
    *,
    workers: int = 0,
) -> Headline:
    """Returns the headline; `workers` is their number, for a page without a run."""
    seen = tuple(problems)
    found = sorted(
        (*seen, *_alerts_without_problem(seen, remediator)),
        key=lambda one: _ORDER.index(one.tone),
    )
    if not found:
        return _without_problem(runs, remediator, workers)
    first, left = found[0], len(found) - 1
    tones = [first.tone, *_firing_tones(remediator)]
    if isinstance(remediator, RemediatorStatus):
        tones.append(remediator.tone)
    handler = _handler(first, remediator)
    more = f"And {left} more, below." if left else ""
    sentence = " ".join(part for part in (_sentence(first.clause), handler, more) if part)
    return Headline("bad" if "bad" in tones else "warn", sentence, tuple(found))


def _alerts_without_problem(
    problems: Sequence[Problem], remediator: RemediatorStatus | str | None
) -> Iterator[Problem]:
    """Yields a problem for each alert and incident that no other problem explains."""
    if not isinstance(remediator, RemediatorStatus):
        return
    for alert in remediator.firing or ():
        explained = any(one.concerns(alert.run, alert.worker) for one in problems)
        if alert.tone in ("bad", "warn") and not explained:
            summary = f": {alert.summary.rstrip('.')}" if alert.summary else ""
            clause = f"{alert.alert} fires on {_about(alert.run, alert.worker)}{summary}"
            yield Problem(alert.tone, clause, alert.run, alert.worker)
    firing = {(one.alert, one.run, one.worker) for one in remediator.firing or ()}
    for incident in remediator.alerts:
        if incident.tone == "quiet" or (incident.alert, incident.run, incident.worker) in firing:
            continue
        if not any(one.concerns(incident.run, incident.worker) for one in problems):
            about = _about(incident.run, incident.worker)
            clause = f"{incident.alert} on {about} is open at the remediator"
            yield Problem(incident.tone, clause, incident.run, incident.worker)


def _firing_tones(remediator: RemediatorStatus | str | None) -> list[Tone]:
    firing = remediator.firing if isinstance(remediator, RemediatorStatus) else None
    return [alert.tone for alert in firing or ()]


def _handler(problem: Problem, remediator: RemediatorStatus | str | None) -> str:
    """Returns the sentence that says who deals with `problem`."""
    if remediator is None:
        return "No remediator is configured."
    if isinstance(remediator, str):
        return f"{_gone(remediator)} An operator is needed."
    for hold in remediator.holds:
        if hold.covers(problem.run, problem.worker):
            scope = _about(hold.run, hold.worker)
            return f"{_held(scope if hold.run else '')}: {hold.text}."
    for action in remediator.actions:
        if action.in_progress and problem.concerns(action.run, action.worker):
            target = "it" if action.worker == problem.worker else action.worker or "the host"
            return f"The remediator {action.in_progress} {target}."
    if remediator.mode == "observe":
        return "The remediator only observes."
    if remediator.operator_needed:
        return remediator.operator_needed
    return _decision(problem, remediator)


def _decision(problem: Problem, remediator: RemediatorStatus) -> str:
    for incident in remediator.alerts:
        if problem.concerns(incident.run, incident.worker) and incident.tone != "quiet":
            reason = f": {incident.reason}" if incident.reason else ""
            if incident.verdict == "refuses" or incident.tone == "bad":
                return f"The remediator does not act{reason}."
            if incident.verdict == "acts":
                return "The remediator acts on it."
            if problem.failed and incident.reason.startswith(_ELSEWHERE):
                return _NOBODY
            word = "waits" if incident.verdict == "waits" else "is deciding what to do"
            return f"The remediator {word}{reason}."
    own = [one for one in remediator.firing or () if problem.concerns(one.run, one.worker)]
    if own:
        return _firing_sentence(own)
    if remediator.firing is None:
        return f"Alerts are not known: {_why_not_known(remediator)}."
    return "Nothing to do yet: an alert fires if it lasts."


def _firing_sentence(alerts: Sequence[FiringAlert]) -> str:
    handled = [one for one in alerts if one.handled]
    if handled:
        return f"{handled[0].alert} fires: {handled[0].handling}."
    return "Nothing acts on it: an operator is needed."


def _without_problem(
    runs: Sequence[RunView], remediator: RemediatorStatus | str | None, workers: int
) -> Headline:
    up = "1 worker is up" if workers == 1 else f"{workers} workers are up"
    doing = "; ".join(map(describe_run, runs)) or (up if workers else "the host is observed")
    if remediator is None:
        return Headline("good", f"No problem is seen: {doing}. Alerts are not known.")
    if isinstance(remediator, str):
        return Headline("warn", f"{_gone(remediator)} Alerts are not known. An operator is needed.")
    if remediator.tone == "bad":
        return Headline("bad", remediator.verdict)
    if remediator.holds:
        hold = remediator.holds[0]
        held = _held(_about(hold.run, hold.worker) if hold.run else "")
        return Headline("warn", f"{held}: {hold.text}. No problem is seen: {doing}.")
    if remediator.firing is None:
        why = _why_not_known(remediator)
        sentence = f"Nothing will be healed, alerts are not known: {why}. An operator is needed."
        return Headline("warn", f"{sentence} No problem is seen: {doing}.")
    mode = " The remediator only observes." if remediator.mode == "observe" else ""
    if remediator.firing_count:
        count = plural(remediator.firing_count, "alert")
        verb = "fires" if remediator.firing_count == 1 else "fire"
        return Headline("good", f"{_sentence(doing)} {count} for information {verb}.{mode}")
    return Headline("good", f"All is well: {doing}.{mode}")


def describe_run(run: RunView) -> str:
    """Returns text such as `demo trains, step 216 of 100,000, saved 7 s ago`."""
    phase = run.phase.replace("_", " ")
    words = {"": "is observed", "training": "trains", "waiting for rollouts": "trains"}
    verb = words.get(phase, f"is {phase}")
    if run.finished or run.failure:  # its last phase stays known
        verb = f"has failed ({run.failure})" if run.failure else "has finished"
    parts = [f"{run.name} {verb}"]
    if run.step is not None:
        parts.append(f"step {run.step:,.0f}{'' if run.total is None else f' of {run.total:,.0f}'}")
    ages = [one.age for one in run.checkpoints if one.age is not None]
    if ages and not run.finished:
        parts.append(f"saved {format_duration(round(min(ages)))} ago")
    return ", ".join(parts)


def _gone(problem: str) -> str:
    return f"Nothing will be healed: the remediator does not answer ({problem})."


def _held(scope: str) -> str:
    return f"{scope} will not be healed" if scope else "Nothing will be healed"


def _why_not_known(remediator: RemediatorStatus) -> str:
    return remediator.alerts_problem or "this remediator does not report them"


def _about(run: str, worker: str) -> str:
    return "/".join(part for part in (run, worker) if part) or "the host"


def _sentence(clause: str) -> str:
    """Returns the clause with a full stop; names at its start keep their case."""
    return f"{clause}."
