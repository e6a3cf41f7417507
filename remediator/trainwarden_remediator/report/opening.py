"""The opening of a night's report: how the runs are or went, and what faults cost. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from trainwarden_exporter.runtime.formatting import format_duration, plural
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.report.fault import downtime, interruption
from trainwarden_remediator.report.host_now import Trouble, has_stalled, stands_still
from trainwarden_remediator.report.markdown import text
from trainwarden_remediator.report.model import IncidentRecord
from trainwarden_remediator.report.summary import HeadlineState, headline

MAX_RUNS = 2
"""Runs whose time is in the first sentence; of more, it says how many are well."""

MAX_NAMES = 3
"""Names of runs in the first sentence."""

Fault = tuple[str, float]
"""The run of a fault and the start of its interruption, else the number of its incident."""

DAYS_FROM = 3
"""Days from which on a period is not in hours."""

_WORST: Mapping[HeadlineState, str] = {
    "person": "needs you",
    "open": "is still open",
    "held": "is held",
    "watched": "is healed and still watched",
    "over": "ended, but not by the remediator",
    "stopped": "ended as an operator stopped it",
    "nothing": "ended without the remediator",
    "healed": "was healed",
}
"""What became of a fault, the worst first."""

_TROUBLES: Mapping[Trouble, str] = {
    "silent": "stands still",
    "handled": "is being healed or held",
}

_PLURALS = {"was": "were", "is": "are", "needs": "need", "stands": "stand"}


def format_period(seconds: float) -> str:
    """Returns text such as `In the last 24 h`."""
    if seconds < DAYS_FROM * 86400:
        return f"In the last {seconds / 3600:.0f} h"
    return f"In the last {format_duration(round(seconds))}"


def opening(
    exporter: ExporterState | str,
    incidents: Sequence[IncidentRecord],
    period: str,
    now: float,
    unwell: Mapping[str, Trouble] = MappingProxyType({}),
) -> str:
    """Returns two sentences at `now` (Unix seconds); `period` is the time of the incidents.

    `unwell` are the runs that are not well. Of many runs, the second sentence is a paragraph of its
    own.
    """
    costs: dict[Fault, float] = {}
    for one in incidents:
        if (down := downtime(one)) is not None:
            costs[_fault(one)] = down
    faults = _fault_sentence(incidents, costs, period)
    if isinstance(exporter, ExporterState) and len(exporter.all_runs) > MAX_RUNS:
        return f"{_many_runs_sentence(exporter.all_runs, unwell)}\n\n{faults}"
    return f"{_time_sentence(exporter, costs, now)} {faults}"


def _many_runs_sentence(runs: Collection[str], unwell: Mapping[str, Trouble]) -> str:
    states = [unwell.get(name) for name in runs]
    count, well = len(states), states.count(None)
    if well == count:
        return f"All {count} runs are well."
    parts = [(well, "is well", "")]
    parts += [(states.count(one), words, "") for one, words in _TROUBLES.items()]
    yours = [name for name in runs if unwell.get(name) == "yours"]
    more = f" and {len(yours) - MAX_NAMES} more" if len(yours) > MAX_NAMES else ""
    parts.append((len(yours), "needs you", f": {text(', '.join(yours[:MAX_NAMES]))}{more}"))
    shown = (f"{_counted(number, what)}{names}" for number, what, names in parts if number)
    return f"{count} runs: {', '.join(shown)}."


def _fault(incident: IncidentRecord) -> Fault:
    """Returns the fault. Incidents of one interruption are one: a dead server stalls a trainer."""
    lost = interruption(incident)
    return incident.affected_run, lost["interruption_start"] if lost else incident.id


def _time_sentence(exporter: ExporterState | str, costs: Mapping[Fault, float], now: float) -> str:
    if isinstance(exporter, str):
        return "How much the runs trained is not known: the exporter does not answer."
    known = [
        _training(name, run, [cost for fault, cost in costs.items() if fault[0] == name], now)
        for name, run in exporter.runs.items()
        if run.counted_seconds
    ]
    if not known:
        return "No watched run has made a step." if exporter.all_runs else "No run was watched."
    return "; ".join(known) + "."


def _training(name: str, run: RunState, costs: Sequence[float], now: float) -> str:
    trained, counted = run.effective_seconds or 0.0, run.counted_seconds or 1.0
    # The step that a fault cuts short and the next new one are in its cost, too.
    in_both = trained + sum(costs) - counted
    if 0 < in_both <= 2 * len(costs) * (run.usual_step_seconds or 0.0):
        trained -= in_both
    if stands_still(run, now):  # once it has stalled, that time is left out already
        still = now - (run.last_step_at or run.progress_at or now)
        trained = min(trained, counted - still) if has_stalled(run, now) else trained - still
    trained = max(0.0, trained)
    spent = f"{format_duration(round(trained))} of the {format_duration(round(counted))}"
    sentence = f"{text(name)} trained for {spent} that it was watched ({trained / counted:.0%})"
    paused = round(run.paused_seconds or 0.0)
    return f"{sentence}, {format_duration(paused)} of it without a step" if paused else sentence


def _fault_sentence(
    incidents: Sequence[IncidentRecord], costs: Mapping[Fault, float], period: str
) -> str:
    states: dict[Fault, HeadlineState] = {}
    order = list(_WORST)
    for one in incidents:
        loop = one.id if one.looped else one.loop
        fault, state = _fault(one) if loop is None else ("", loop), headline(one).state
        states[fault] = min(states.get(fault, state), state, key=order.index)
    if not states:
        return f"{period}, there was no incident."
    spent = format_duration(round(sum(costs.values())))
    cost = f" cost {spent}" if costs else ""
    if 0 < len(costs) < len(states):
        cost = f"; the known cost of {len(costs)} of them is {spent}"
    return f"{period}, {plural(len(states), 'fault')}{cost}{_outcome(list(states.values()))}."


def _outcome(states: Sequence[HeadlineState]) -> str:
    if len(set(states)) == 1:
        subject = {1: "it", 2: "both"}.get(len(states), "all")
        word = _WORST[states[0]]
        return f"; {subject} {word if len(states) == 1 else _plural(word)}"
    parts = [_counted(states.count(one), word) for one, word in _WORST.items() if one in states]
    return f"; {', '.join(parts)}"


def _counted(count: int, words: str) -> str:
    return f"{count} {words if count == 1 else _plural(words)}"


def _plural(words: str) -> str:
    verb, _, rest = words.partition(" ")
    return f"{_PLURALS.get(verb, verb)} {rest}"
