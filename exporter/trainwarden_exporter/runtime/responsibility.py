"""Who acts: the words of both pages, `trainwarden status`, the reports and the notifications."""

from __future__ import annotations

import re

from trainwarden_exporter.runtime.formatting import format_duration

LABEL = "Who acts"
YOU = "You, now"
REMEDIATOR = "The remediator"
NOBODY = "Nobody needs to"


def who_acts(
    *, operator: bool = False, remediator: bool = False, held_by: str | None = None, until: str = ""
) -> str:
    """Returns who acts next, as one of four: who set a hold, you, the remediator, nobody.

    `held_by` is not None while a hold keeps the remediator from acting; it may be empty, and so may
    `until`, its end. Such a hold comes first: who set it has taken over.
    """
    if held_by is not None:
        return f"{held_by or 'The operator of the hold'}, until {until or 'the hold is lifted'}"
    if operator:
        return YOU
    return REMEDIATOR if remediator else NOBODY


def before_alert(
    worker: str, *, may_restart: bool, mode: str, since: str = "its end"
) -> tuple[str, str]:
    """Returns who starts a worker that is gone, and what is done, while no alert reports it yet.

    `mode` is that of the remediator, which may restart the worker or not; `since`: what the alert
    is about.
    """
    soon = f"once its alert fires, some 20 s after {since}"
    if not may_restart:
        return YOU, "the remediator may not restart it"
    if mode == "observe":
        return YOU, f"the remediator only observes: it proposes a restart {soon}"
    return REMEDIATOR, f"restarts {worker} {soon}"


OR_LIMIT = ", or its limit is over"
_UNTIL = f"once its stacks show that it is stuck{OR_LIMIT}"
STALLED = f"restarts the run {_UNTIL}"
"""What the remediator does about a run that stands still; follows its name."""

HELD_BY_ALERT = "held while another alert fires"
"""Why the remediator does not act on an alert where an operator mends the cause of another one."""

WITH_CHECKPOINTS = "started with `--checkpoints FOLDER`, it can be restarted"
"""What an operator does so that a hang is healed; the clause is about the run."""


def calls_nobody(event: str) -> str:
    """Returns that the remediator notifies nobody of such an event; follows its name."""
    return f"calls nobody, as `notify` in remediator.yml has no receiver for `{event}`"


_SEARCH = "without `--checkpoints FOLDER`, it restarts only a search that stores its trials"
_STALLED_FOR_GOOD = {
    True: f"calls you {_UNTIL}: {_SEARCH}",
    False: f"shows here that you are needed, {_UNTIL}, and {calls_nobody('gave_up')}: {_SEARCH}",
}
"""As STALLED, where the run has no known checkpoints, by whether the remediator calls somebody."""

_LAST_STEP = "if its stacks prove that it hangs: after its last step it is never restarted"
_STALLED_AT_END = {
    True: f"calls you {_LAST_STEP}",
    False: f"shows here that you are needed, and {calls_nobody('gave_up')}, {_LAST_STEP}",
}
"""As STALLED, of a run that has made its last step."""

STALL_HANDLINGS = frozenset({STALLED, *_STALLED_FOR_GOOD.values(), *_STALLED_AT_END.values()})


def stall_handling(
    *,
    may_restart: bool,
    mode: str,
    without_checkpoints: bool,
    calls: bool,
    last_step_made: bool = False,
) -> tuple[str, str]:
    """Returns who acts on a run that stands still and is not proved to hang, and what is done.

    `mode` is that of the remediator, which may restart some worker of the run or not; it `calls`
    somebody where a receiver is configured.
    """
    if not may_restart:
        return YOU, "the remediator may not restart it"
    if mode == "observe":
        return YOU, "the remediator only observes"
    if last_step_made:
        return REMEDIATOR, _STALLED_AT_END[calls]
    return REMEDIATOR, _STALLED_FOR_GOOD[calls] if without_checkpoints else STALLED


def with_limit(handling: str, seconds: float) -> str:
    """Returns `handling` with the time of its limit, where it names one."""
    latest = f", at the latest after {format_duration(round(seconds))} without a step"
    return handling.replace(OR_LIMIT, latest)


AVOIDS_STALL = '`with trainwarden.phase("evaluating"):` around an evaluation avoids this message'


def left_until(handling: str, until: str) -> str:
    """Returns `handling` of a silent run that may be well, as a clause; `until`: its limit."""
    then = handling.replace(f", {_UNTIL}", "").replace(f" {_UNTIL}", "")
    unless = "unless its stacks prove a hang or another fault shows"
    return f"a silent run is left alone until {until}, {unless}; then the remediator {then}"


AT_PROMPT = "it waits for you at a prompt"
"""How an operator has halted a run, as a clause about it."""

_STOPPED = re.compile(r"\bprocess (\d+) of \S+ is stopped\b", re.ASCII)


def continues(waits: str) -> str:
    """Returns what continues the processes of a run that a signal has stopped.

    `waits`: which process of it waits for what, as the exporter shows it; empty if not known.
    """
    pids = dict.fromkeys(_STOPPED.findall(waits))
    return f"`{' '.join(('kill -CONT', *pids))}` continues {'them' if len(pids) > 1 else 'it'}"


def suspended(waits: str) -> str:
    """Returns the same of a run that is stopped, with what `continues` it."""
    return f"it is stopped: {continues(waits)}"


def left_alone(halted: str) -> str:
    """Returns what the remediator does about a run that is `halted`, such a clause."""
    return f"the remediator leaves it alone: {halted}"


def as_sentence(who: str, handling: str) -> str:
    """Returns what is done as a sentence; `who` acts."""
    if not handling:
        return ""
    if who == REMEDIATOR:
        return f"It {handling}."
    return f"{handling[:1].upper()}{handling[1:]}."


MAKE_ROOM = "delete or move away the oldest checkpoints, never the newest complete one"
"""What an operator does about a disk that is full."""

NOT_FINITE_HANDLING = (
    "no restart heals a loss that is not finite; if it lasts, `trainwarden runbook"
    " TrainingNotFinite` says what to do"
)
"""What an operator does about it, from the first look on: its alert calls almost a minute later."""

NOTHING_YET = "Nothing to do yet: an alert fires if it lasts."
"""What is done about a run that is late, and has not stalled."""


def nothing_yet(limit: float | None) -> str:
    """Returns that, with the seconds without a step after which an alert fires, if known."""
    if limit is None:
        return NOTHING_YET
    lasts = f"it lasts for {format_duration(round(limit))}, or once its stacks show that it hangs"
    return NOTHING_YET.replace("it lasts", lasts)


LINE_SECONDS = {"TrainingTroubleLine": 600.0, "TrainingErrorStorm": 120.0}
"""Alerts of error lines: each is a sign of a fault, and the fault may have an alert of its own. The
seconds are those after the last line for which it may stay active."""


def line_end(alert: str) -> str:
    """Returns how soon such an alert ends once its run has ended or started again, as text."""
    return f"{format_duration(round(LINE_SECONDS[alert]))} of the line"


STALL = "TrainingStepStalled"
STALL_CONSEQUENCES = frozenset(
    {
        *("TrainingGpuIdle", "TrainingLogSilent", "TrainingCheckpointOverdue"),
        *("TrainingRolloutLag", "TrainingPolicyStale", "TrainingWeightUpdateSlow"),
    }
)
"""Alerts about what a run does not do because it stands still. The shipped Alertmanager drops them
beside the critical STALL, and only there."""

OF_STANDSTILL = "it follows from the standstill of the run"
"""What is done about such an alert: nothing of its own."""


def urgency(who: str) -> int:
    """Returns a number to sort by: what needs you comes first, what needs nobody last."""
    return {YOU: 0, REMEDIATOR: 2, NOBODY: 3}.get(who, 1)


def rank(who: str, tone: str) -> tuple[int, int]:
    """Returns what both pages and `trainwarden status` sort problems and alerts by, first to last.

    `tone`: `good`, `warn`, `bad` or `quiet`.
    """
    return urgency(who), ("bad", "warn", "quiet", "good").index(tone)
