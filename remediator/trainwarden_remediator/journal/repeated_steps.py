"""How many steps a run that was restarted makes again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwarden_exporter.runtime.formatting import plural


def count_repeated(facts: Mapping[str, Any], step: float | None) -> tuple[float | None, bool]:
    """Returns the number of steps that a healed run makes again, and whether there are no more.

    `facts` are those of the outcome. Without a count it is at least the steps since `step`, that of
    the run at the intent: it may have gone on until its process was stopped.
    """
    counted, resumed = facts.get("steps_repeated"), facts.get("resume_step")
    if counted is None:
        return None if step is None or resumed is None else step - resumed, False
    return counted, facts.get("step_spacing", 1) == 1


def describe_repeated(facts: Mapping[str, Any], step: float | None) -> str:
    """Returns how many steps a healed run makes again, or ""; see `count_repeated`."""
    counted, exact = count_repeated(facts, step)
    return "" if facts.get("resume_step") is None else repeated_steps(counted, exact=exact)


def repeated_steps(count: float | None, *, exact: bool) -> str:
    """Returns text such as `7 steps made again`, or "" where nothing certain is known.

    `exact` is false where there may have been more.
    """
    if not count or count < 0:
        return "no step lost" if exact and count == 0 else ""
    return f"{'' if exact else 'at least '}{plural(round(count), 'step')} made again"
