"""Counts the restarts of a run that bring it no further. Pure.

A run resumes from a checkpoint: if it fails before it has saved another, it makes the same steps
again after each restart. It has come further once it exceeds its highest step, or has saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from trainwarden_remediator.model import PastAction
from trainwarden_remediator.observation.model import RunState

OTHER_RUN_SHARE = 0.5
"""A run at less than this share of the step of its last restart is another one of its name, unless
no operator has started it since."""


def since_progress(
    history: Sequence[PastAction], run: RunState | None, started_at: float = math.inf
) -> Sequence[PastAction]:
    """Returns the actions since the run last exceeded its highest step, or had a newer checkpoint.

    An action with unknown progress counts as not followed by any. `started_at`: when an operator
    last started the run (Unix seconds); infinite if that is not known.
    """
    step, checkpoint = None, None
    begin = 0
    for index, action in enumerate(history):
        # Its step is low after a crash at another one, or while its last steps are not read yet.
        is_same_run = index > 0 and history[index - 1].intent_at >= started_at
        if _is_newer(action.step, step) or _is_newer(action.checkpoint, checkpoint):
            begin = index
        elif _is_far_below(action.step, step) and not is_same_run:
            begin, step, checkpoint = index, None, None
        step, checkpoint = _newest(step, action.step), _newest(checkpoint, action.checkpoint)
    if run is not None and (_is_newer(run.step, step) or _is_newer(run.checkpoint, checkpoint)):
        return ()
    return history[begin:]


def count_without_progress(
    history: Sequence[PastAction], run: RunState | None, started_at: float = math.inf
) -> int:
    """Counts the last actions after which the run came no further, however long ago they were.

    An unknown step or checkpoint, then or now, ends the count: unknown is no sign of a loop. So
    does an older checkpoint than at an action before: an operator took the run back to it.
    `started_at`: see `since_progress`.
    """
    if run is None:
        return 0
    fruitless = since_progress(history, run, started_at)
    checkpoints = [*(action.checkpoint for action in fruitless), run.checkpoint]
    went_back = [_is_newer(then, later) for then, later in pairwise(checkpoints)]
    count = 0
    for action, ends in zip(reversed(fruitless), reversed(went_back), strict=True):
        marks = ((action.step, run.step), (action.checkpoint, run.checkpoint))
        if ends or not any(None not in pair for pair in marks):
            break
        count += 1
    return count


def _is_far_below(step: float | None, highest: float | None) -> bool:
    return step is not None and highest is not None and step < OTHER_RUN_SHARE * highest


def _is_newer(now: float | None, then: float | None) -> bool:
    return now is not None and then is not None and now > then


def _newest(one: float | None, other: float | None) -> float | None:
    return max((mark for mark in (one, other) if mark is not None), default=None)
