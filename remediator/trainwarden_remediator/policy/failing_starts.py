"""What an operator does about a worker that fails at each start, for pages and reports. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from trainwarden_exporter.frameworks.error_lines import shown_error
from trainwarden_exporter.processes.announcements import AnnouncedRuns, Announcement
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.typed_commands import as_typed, stop_command
from trainwarden_exporter.runtime.formatting import format_clock, plural
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.responsibility import REMEDIATOR, YOU
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.journal.event_text import describe_attempt
from trainwarden_remediator.journal.recurrence import RECURRENCE_SECONDS
from trainwarden_remediator.model import GAVE_UP, RESTART_LOOP, WORKER_GONE, PastAction

FAILING = frozenset({WORKER_GONE, RESTART_LOOP, GAVE_UP})
"""The alerts of a worker that fails at each start."""

LOOP_SECONDS = 600.0
"""Time within which the restarts of a loop were, as in its rule."""

_CAUSES = {
    "TrainingWorkerMemoryOverLimit": (
        "as it exceeds its memory limit",
        " and grows",
        "mend the leak, or raise its memory limit (`--memory-limit` of `trainwarden run`)",
    ),
}
"""Why the remediator restarted a worker, what it does while it runs, and how an operator
mends that, by alert."""

REPEATED = 2
"""Failed restarts, or healed crashes, from which on an operator should look, though the remediator
tries again."""

FAILED_AFTER = "It failed after"
"""How the advice on a worker that fails at each start begins: with how often it was restarted."""

_NEVER_STARTS = "It can never start"
_NO_HELP = "Another restart alone does not help"
_FOR_A_WHILE = "Each restart helps for a while"
_UNTIL_CRASH = "Each restart helps until the next crash, and repeats what was not saved"
"""What is wrong with restarts: that heal nothing, a worker that fails later, or that crashes."""


def mend_hint(alert: str) -> str:
    """Returns how an operator mends what makes an alert fire again some time after each restart."""
    if alert == WORKER_GONE:
        return f"{_UNTIL_CRASH}: mend its cause."
    _, _, mend = _CAUSES.get(alert, ("", "", "mend its cause"))
    return f"{_FOR_A_WHILE}: {mend}."


def failed_restarts(
    key: WorkerKey, actions: Sequence[PastAction], announced: AnnouncedRuns
) -> Sequence[PastAction]:
    """Returns the last restarts of a worker, none of them with success, the oldest first.

    Those from before an operator started it again do not count: its cause may be mended.
    """
    own = _restarts(key, actions, announced)
    failed = takewhile(lambda one: not one.healed, reversed(own))
    return [one for one in failed if one.ended_at is not None][::-1]


def fails_again(alert: Alert, actions: Sequence[PastAction], announced: AnnouncedRuns) -> bool:
    """Whether an operator should look at a worker though the remediator restarts it."""
    key = WorkerKey(alert.run, alert.worker)
    failed = failed_restarts(key, actions, announced)
    return max(len(failed), len(_healed_crashes(alert, actions, announced))) >= REPEATED


def _healed_crashes(
    alert: Alert, actions: Sequence[PastAction], announced: AnnouncedRuns
) -> Sequence[PastAction]:
    """Returns the restarts within RECURRENCE_SECONDS that have healed a crash, the oldest first."""
    own = _restarts(WorkerKey(alert.run, alert.worker), actions, announced)
    since = alert.starts_at - RECURRENCE_SECONDS
    return [one for one in own if one.healed and one.alert == WORKER_GONE and one.intent_at > since]


def _restarts(
    key: WorkerKey, actions: Sequence[PastAction], announced: AnnouncedRuns
) -> Sequence[PastAction]:
    """Returns the actions on a worker since an operator started it."""
    worker = announced.workers.get(key)
    since = 0.0 if worker is None else worker.announcement.announced_at
    return [
        one for one in actions if one.key == key and one.kind != "notify" and one.intent_at >= since
    ]


def mending(
    alert: Alert,
    actions: Sequence[PastAction],
    announced: AnnouncedRuns,
    error: str = "",
    *,
    who_acts: str = YOU,
) -> str:
    """Returns who has restarted a worker that fails at each start, and what an operator does.

    "" for any other alert, and where the restarts are those of another program. `error` is the
    line with which it failed; without it, that of its announcement. `who_acts`: on the alert.
    """
    key = WorkerKey(alert.run, alert.worker)
    found = announced.workers.get(key)
    one = None if found is None else found.announcement
    start = announced.start_command(key)
    typed = f" yourself{f': {as_typed(start)}' if start and '`' not in start else ''}."
    if found_loop := _own_loop(alert, actions, 0.0 if one is None else one.announced_at):
        who, grows, helps = found_loop
        lives = one is not None and not one.has_ended
        stop = f"`{stop_command(key, announced.workers)}` ends it"
        goes_on = f" It still runs{grows}: {stop}." if lives else ""
        return f"{who}.{goes_on} {helps}, then start it{typed}"
    if alert.name not in FAILING:
        return ""
    doing = any(action.key == key and action.ended_at is None for action in actions)
    failed = failed_restarts(key, actions, announced)
    crashes = [] if failed else _healed_crashes(alert, actions, announced)
    helps = _NO_HELP
    if len(crashes) >= REPEATED:
        times = len(crashes) + (doing or alert.name != RESTART_LOOP)
        since = format_clock(crashes[0].intent_at, alert.starts_at)
        who = f"It has crashed {times} times since {since}, though each restart healed it"
        helps = _UNTIL_CRASH
    elif not (who := _who(failed, one, doing=doing)):
        return ""
    shown = (error or ("" if one is None else shown_error(one.last_lines))).replace("`", "'")
    does = f"{helps}: mend the cause, then start it"
    if who == _NEVER_STARTS:  # nothing has restarted it
        does = "Mend the cause, then start it"
    if who_acts == REMEDIATOR:
        again = "The remediator tries again; once the cause is mended, you can start it"
        does = f"{helps}. {again}" if helps == _UNTIL_CRASH else again
    left = redact(one.left) if one is not None else ""
    left = f" {left[:1].upper()}{left[1:]}." if left else ""
    return f"{who}{f': `{shown}`' if shown else ''}.{left} {does}{typed}"


def _own_loop(
    alert: Alert, actions: Sequence[PastAction], started_at: float
) -> tuple[str, str, str] | None:
    """Returns who has restarted a worker in a loop though it did not fail.

    Also what the worker does while it runs, whether its restarts help, and what mends it.

    None for any other alert, and if one of the restarts was of a worker that was gone. An operator
    has started the worker at `started_at`.
    """
    key = WorkerKey(alert.run, alert.worker)
    after = max(started_at, alert.starts_at - LOOP_SECONDS)
    own = [
        one
        for one in actions
        if one.key == key
        and one.kind == "restart"
        and one.result == "done"
        and one.intent_at > after
    ]
    causes = {one.alert for one in own}
    if alert.name != RESTART_LOOP or len(own) < REPEATED or causes & {"", WORKER_GONE}:
        return None
    named, since = sorted(causes), f"since {format_clock(own[0].intent_at, alert.starts_at)}"
    if len(named) == 1 and named[0] in _CAUSES:
        why, grows, mend = _CAUSES[named[0]]
    else:
        why, grows, mend = f"for {' and '.join(named)}", "", "mend the cause of that"
    helps = _FOR_A_WHILE if all(one.healed for one in own if one.ended_at is not None) else _NO_HELP
    who = f"The remediator restarted it {plural(len(own), 'time')} {since} {why}"
    return who, grows, f"{helps}: {mend}"


def _all_of(count: int, by: str) -> str:
    """Returns `each restart by …, 3 times`."""
    return f"the one restart {by}" if count == 1 else f"each restart {by}, {plural(count, 'time')}"


def _who(failed: Sequence[PastAction], announced: Announcement | None, *, doing: bool) -> str:
    """Returns who restarted the worker, and how often; `doing`: whether it is restarted now."""
    if failed:
        count, attempt, attempts = len(failed), failed[-1].attempt, failed[-1].attempts
        if attempt in (None, count) and not doing:
            limit = "" if attempts is None else f" of at most {attempts}"
            return f"{FAILED_AFTER} {_all_of(count, 'by the remediator')}{limit}"
        # Others helped for a while, or are not judged yet: the journal counts those, too. Where it
        # counts fewer, as new steps have renewed the attempts, a second number would mislead.
        last = "the" if doing and count == 1 else "the last"
        which = f"{last} restart" if count == 1 else f"{last} {count} restarts"
        again = ", and was restarted again" if doing else ""
        nth = "" if attempt is not None and attempt < count else describe_attempt(attempt, attempts)
        return f"{FAILED_AFTER} {which} by the remediator{nth}{again}"
    if announced is not None and announced.own_restarts:
        count = len(announced.own_restarts)
        return f"{FAILED_AFTER} {_all_of(count, 'by `--restart on-failure`')}"
    if announced is not None and announced.never_works:
        return _NEVER_STARTS
    return ""
