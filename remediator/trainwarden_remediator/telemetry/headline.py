"""The headline of the status page: what is wrong, who acts, and what is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwarden_exporter.frameworks.error_lines import MAX_SHOWN, shown_end, shown_error
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.typed_commands import dismissal, start_again
from trainwarden_exporter.runtime import formatting
from trainwarden_exporter.runtime.responsibility import (
    NOBODY,
    REMEDIATOR,
    STALL,
    YOU,
    as_sentence,
    urgency,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import AnnouncedTarget
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.rows import finished_workers
from trainwarden_remediator.model import Incident, PastAction
from trainwarden_remediator.observation.active_alerts import ActiveAlerts
from trainwarden_remediator.policy.alert_handling import AlertView, Tone, build_alert_views
from trainwarden_remediator.policy.failing_starts import FAILING
from trainwarden_remediator.policy.hold_text import held, holder, in_force
from trainwarden_remediator.policy.incident_handling import (
    action_in_progress,
    bounded,
    handling_of,
    is_refused,
    subject,
)
from trainwarden_remediator.policy.situation import Situation, situation_of
from trainwarden_remediator.telemetry.state import JournalSummary, RemediatorState


@dataclass(frozen=True, slots=True)
class Headline:
    """What the page says first: its tone (`good`, `warn` or `bad`), what is wrong, who acts."""

    tone: Tone
    sentence: str
    who: str
    """In the words of `who_acts`."""
    how: str = ""
    """What is done, as a sentence."""


@dataclass(frozen=True, slots=True)
class CurrentWork:
    """The state of the program, the active alerts, and what is done about them."""

    state: RemediatorState
    alerts: ActiveAlerts
    incidents: Sequence[Incident] = ()
    """The oldest open incidents, oldest first."""
    actions: Sequence[PastAction] = ()
    """The last actions, oldest first."""
    setup: Setup | None = None
    halted: Mapping[str, str] = field(default_factory=dict)
    """How operators have halted runs, by run."""
    finished: Collection[str] = ()
    """The runs that have finished, as the exporter shows."""
    last_steps: Mapping[str, float] = field(default_factory=dict)
    """When each run made its last step, by run."""
    last_lines: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    ending: Collection[str] = ()
    dead: Collection[str] = ()
    """As in Situation."""
    faults: Mapping[WorkerKey, FaultFacts] = field(default_factory=dict)
    """What the evidence shows of the workers whose alerts have not resolved."""

    def error_of(self, alert: Alert) -> str:
        """Returns the line with which the worker of an alert fails at each start, or ""."""
        return self.error(WorkerKey(alert.run, alert.worker)) if alert.name in FAILING else ""

    def cause_of(self, alert: Alert) -> str:
        """Returns that line, or what the processes of a stuck run wait for; "" if not known.

        Once an action on the run has ended, what they waited for before it is no cause any more.
        """
        if alert.name != STALL:
            return self.error_of(alert)
        fault = self.faults.get(WorkerKey(alert.run, alert.worker), FaultFacts())
        ended = (one.result_at for one in self.actions if one.key.run == alert.run)
        is_older = any(at is not None and at > fault.at for at in ended)
        return "" if is_older else formatting.shorten(fault.cause, MAX_SHOWN)

    def error(self, key: WorkerKey) -> str:
        """Returns the line with which a worker has failed, or else its last line, or ""."""
        announced = None if self.setup is None else self.setup.announced.workers.get(key)
        lines = () if announced is None else announced.announcement.last_lines
        known = self.faults.get(key, FaultFacts()).error
        return shown_error(lines) or formatting.shorten(known, MAX_SHOWN) or shown_end(lines)

    def remedy(self, key: WorkerKey) -> str:
        """Returns what starts or dismisses a failed command of `trainwarden run`, else ""."""
        workers = {} if self.setup is None else self.setup.announced.workers
        found = workers.get(key)
        if found is None or not found.announcement.failure:
            return ""
        start = start_again(found.announcement.start_command)
        return f"{f' {start}' if start else ''} {dismissal(key, workers)}"

    def situation(self, now: float) -> Situation:
        """Returns what decides who acts, at `now` (Unix seconds)."""
        setup, state, journal = self.setup, self.state, self.state.journal
        known = Situation(now) if setup is None else situation_of(setup, now)
        return replace(
            known,
            mode=state.mode,
            holds=state.holds,
            actions=self.actions,
            halted=self.halted,
            finished=self.finished,
            last_steps=self.last_steps,
            last_lines=self.last_lines,
            ending=self.ending,
            dead=self.dead,
            given_up=() if journal is None else journal.given_up,
            given_up_before=() if journal is None else journal.given_up_before,
        )

    def views(self, now: float) -> tuple[AlertView, ...] | None:
        """Returns the active alerts, the first to act on first; None if they are not known."""
        journal = self.state.journal
        outages = {one.outage for one in self.incidents}
        count = len(outages) if journal is None else journal.open_incidents
        return build_alert_views(self.alerts, self.incidents, count, self.situation(now))


def headline(work: CurrentWork, config: Config, *, now: float) -> Headline:
    """Returns what the page says first at `now` (Unix seconds)."""
    critical, views = critical_problem(work.state), work.views(now)
    if work.state.journal is None:
        return Headline("bad", critical, YOU)
    troubles = [one for one in views or () if one.tone in ("bad", "warn")]
    if troubles and (not critical or urgency(troubles[0].who) < urgency(REMEDIATOR)):
        return _troubled(work, troubles, "" if work.state.journal.given_up else critical)
    gone = work.state.journal.given_up
    if gone and not _problem_of_all(work.state):
        trainers = work.situation(now).trainers
        refused = [one for one in work.incidents if is_refused(one, gone[0], trainers)]
        opened = _opened(work, refused, now) if len(gone) == 1 else None
        if opened is not None and opened.who == YOU:  # it says why
            return replace(opened, tone="bad")
        return Headline("bad", critical, YOU, work.remedy(gone[0]).strip())
    if critical:
        return Headline("bad", critical, YOU)
    if isinstance(work.alerts, str):
        sentence = f"{work.alerts}: no alert is known, and nothing will be healed."
        return Headline("warn", f"{sentence[:1].upper()}{sentence[1:]}", YOU)
    return _opened(work, work.incidents, now) or _calm(work, config, work.state.journal, now)


def _troubled(work: CurrentWork, troubles: Sequence[AlertView], critical: str) -> Headline:
    first = troubles[0]
    # The same colour as on the exporter's page: an alert is not less serious while it is handled.
    tone: Tone = "bad" if critical or any(one.tone == "bad" for one in troubles) else "warn"
    how = critical or as_sentence(first.who, first.handling)
    if first.who == YOU:
        how += work.remedy(WorkerKey(first.alert.run, first.alert.worker))
    return Headline(tone, _firing(troubles, work.cause_of(first.alert)), first.who, how)


def _calm(work: CurrentWork, config: Config, journal: JournalSummary, now: float) -> Headline:
    """Returns the headline without an alert that needs an action."""
    watching = _watching(config, journal.timestamps)
    if holds := in_force(work.state.holds):
        sentence, how = _held(work)
        return Headline("warn", sentence, holder(holds[0], now), how)
    if doing := next(filter(None, map(action_in_progress, reversed(work.actions))), ""):
        how = as_sentence(REMEDIATOR, doing)
        return Headline("warn", f"No alert fires: {watching}.", REMEDIATOR, how)
    views = work.views(now)
    if not views and (dead := _before_an_alert(work, config, now)) is not None:
        return dead
    if journal.open_incidents:
        incidents = formatting.plural(journal.open_incidents, "incident")
        watching += f", watching the progress after {incidents}"
    mode = "; the remediator only observes" if work.state.mode == "observe" else ""
    firing = f"{_count(views)}, none needs an action" if views else "No alert fires"
    return Headline("good", f"{firing}: {watching}{mode}.", NOBODY)


def _before_an_alert(work: CurrentWork, config: Config, now: float) -> Headline | None:
    """Returns the headline of a command of `trainwarden run` that has failed, without an alert."""
    situation = work.situation(now)
    failed = [
        (target, *situation.before_alert(target.key))
        for target in config.targets
        if isinstance(target, AnnouncedTarget) and target.announced.failure
    ]
    if not failed:
        return None
    target, who, handling = min(failed, key=lambda one: urgency(one[1]))
    how = as_sentence(who, handling)
    if who == YOU:
        how += work.remedy(target.key)
    clause = f"{subject(*target.key)} has failed ({target.announced.failure})"
    return Headline("bad", f"{clause}{_shown(work.error(target.key))}.", who, how)


def _opened(work: CurrentWork, incidents: Sequence[Incident], now: float) -> Headline | None:
    """Returns the headline of open incidents whose alerts are not active, else None."""
    situation = work.situation(now)
    handled = [(one, *handling_of(one, situation)) for one in incidents if not one.is_over]
    needed = sorted((one for one in handled if one[1] != NOBODY), key=lambda one: urgency(one[1]))
    if not needed:
        return None
    first, who, handling = needed[0]
    about = f"{bounded(first.alert)} on {subject(first.run, first.worker)}"
    return Headline(
        "warn", f"{about} is open{_more(len(needed))}.", who, as_sentence(who, handling)
    )


def _watching(config: Config, timestamps: Mapping[str, float]) -> str:
    """Returns `it may restart 3 workers, 1 has finished`."""
    finished = finished_workers(timestamps)
    over = sum(all(key in finished for key in target.keys) for target in config.targets)
    if over and over == len(config.targets):
        return "its worker has finished" if over == 1 else f"its {over} workers have finished"
    able = sum(
        target.can_be_restarted and any(key not in finished for key in target.keys)
        for target in config.targets
    )
    text = f"it may restart {formatting.plural(able, 'worker')}"
    return f"{text}, {over} {'has' if over == 1 else 'have'} finished" if over else text


def _held(work: CurrentWork) -> tuple[str, str]:
    """Returns what is held, and by which hold, as sentences."""
    first, *more = in_force(work.state.holds)
    scope = "Nothing" if first.everything else subject(first.run, first.worker)
    negation = "" if first.everything else " not"
    left = "" if first.everything or not more else f" And {len(more)} more held, below."
    sentence = f"No alert fires. {scope} will{negation} be healed.{left}"
    return sentence, as_sentence("", held(first))


def _firing(views: Sequence[AlertView], cause: str) -> str:
    first = views[0].alert
    summary, more = first.annotations.get("summary", ""), _more(len(views))
    about = subject(first.run, first.worker)
    if views[0].who == NOBODY:  # what its summary says is over
        return f"{bounded(first.name)} on {about} has not ended yet{more}."
    if not summary:
        return f"{bounded(first.name)} fires on {about}{more}."
    start, second = summary[:1], summary[1:2]
    words = f"{start if second.isupper() else start.lower()}{summary[1:]}".rstrip(".")
    return f"On {about}: {bounded(words)}{_shown(cause)}{more}."


def _shown(error: str) -> str:
    return f": {error.rstrip('.')}" if error else ""


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _count(views: Sequence[AlertView]) -> str:
    return f"{len(views)} alert fires" if len(views) == 1 else f"{len(views)} alerts fire"


def critical_problem(state: RemediatorState) -> str:
    """Returns a problem of the remediator that an operator must solve, or "".

    First what concerns all workers: what was given up concerns no other one.
    """
    if (problem := _problem_of_all(state)) or state.journal is None:
        return problem
    names = ", ".join("/".join(key) for key in state.journal.given_up)
    return f"The remediator gave up on {names}." if names else ""


def _problem_of_all(state: RemediatorState) -> str:
    journal = state.journal
    if journal is None:
        return "Nothing will be healed: the journal cannot be read."
    if not state.reload_successful:
        return "The configuration file is not in force."
    if state.failsafe_active:
        return "No alerts arrive and memory is short: the failsafe is active."
    if state.alerts_stale:
        return "No alerts arrive: only the failsafe monitors the memory."
    if journal.breaker is not None and journal.breaker.breaker_open:
        return "Nothing will be healed: circuit breaker open until an operator runs `resume`."
    return ""
