"""Recognises the end of an attempt that made its last step, and the start of the next one. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from trainwarden.autopsy import patterns
from trainwarden.autopsy.model import Tally
from trainwarden_exporter.progress.events import ProgressEvent, StepReported
from trainwarden_exporter.progress.state import RunProgress

MIN_JUMP = 2
"""Steps by which a count must go back to be a new attempt, without a line that reports a start."""
_EPOCH_OF = re.compile(r"(?i)\bepochs?[ :=#\[(]{1,3}(\d+) ?(?:/|of) ?(\d+)\b.*?[a-z]\W{1,4}\d")
_FAILURES = patterns.ERRORS | {one.name for one in patterns.ENDINGS} | {"raised"}


def is_last_step(event: ProgressEvent) -> bool:
    """Whether the line itself shows the last step of its count, as in `step 300/300`."""
    return isinstance(event, StepReported) and 0 < (event.total or 0) <= event.step


def is_last_epoch(line: str) -> bool:
    """Whether the line has the results of the last epoch, as in `Epoch 10/10 loss 0.5`.

    Without any results it may be the line with which the last epoch begins.
    """
    found = _EPOCH_OF.search(line)
    return found is not None and found[1] == found[2]


def counts_again(before: RunProgress, event: ProgressEvent) -> bool:
    """Whether a run that has finished counts from the beginning: it was started again.

    Without the end before, the same count would be that of the next epoch.
    """
    if not before.finished or not isinstance(event, StepReported) or not event.total:
        return False
    same = event.total in (before.epoch_total, before.bar_total)
    return same and event.step < event.total - MIN_JUMP


def shows_failure(after: Mapping[str, Tally], errors: Collection[str]) -> bool:
    """Whether an error, an end from outside or a bad exit status is in `after`.

    `errors` are the kinds of lines that the framework reports errors with.
    """
    status = after.get("exit_status")
    if status is not None and set(status.codes) != {"0"}:
        return True
    return not after.keys().isdisjoint(_FAILURES | set(errors))
