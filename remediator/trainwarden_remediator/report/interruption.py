"""What an incident cost the run, by the exporter's account, and without healing. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_remediator.journal.repeated_steps import repeated_steps
from trainwarden_remediator.report.fault import interruption
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.model import IncidentRecord

NIGHT_SECONDS = 12 * 3600.0
"""How long before `unattended_until` nobody is expected to look at the run."""


def interruption_cost(
    incident: IncidentRecord,
    times: TimeFormat,
    unattended_until: str,
    answered_after: float | None = None,
) -> Iterator[str]:
    """Yields what the run lost from its last new step to the next, and would have lost unhealed.

    Without healing, the run would have waited for its operator for `answered_after` seconds, or, if
    that is None, at night until `unattended_until`, a time of day. By day somebody may be there.
    Yields nothing where the exporter reported no interruption.
    """
    found = interruption(incident)
    if found is None:
        return
    start, end = found["interruption_start"], found.get("interruption_end")
    redone = found.get("interruption_steps")
    # Where not every step is logged, there may have been more.
    resume_unknown = "first_step" in found and "resume_step" not in found
    exact = not resume_unknown and found.get("step_spacing", 1) == 1
    again = f"; {shown}" if (shown := repeated_steps(redone, exact=exact)) else ""
    if end is None:
        since, by_then = f"since {times.clock(start)}", "so far"
        if (shown_by := found["shown_by"]) != "now":
            ended = "the incident ended" if shown_by == "end" else times.clock(found["shown_at"])
            since, by_then = f"from {times.clock(start)} until {ended}", "by then"
        again = f"{again} {by_then}" if redone else ""  # what it loses, its resume will show
        yield f"No new step {since}{again}."
        return
    lost = format_duration(round(end - start))
    when = f"{times.clock(start)} to {times.clock(end)}"
    yield f"Downtime: {lost} from the last step to the next new one ({when}){again}."
    if any(action.outcome == "healed" for action in incident.repairs):
        if answered_after is not None:
            waited = format_duration(answered_after)
            yield f"Without healing: {waited}, until its alert is answered (`answered_after`)."
            return
        answered = _next(start, unattended_until, times)
        if answered - start <= NIGHT_SECONDS:
            waited = format_duration(round(answered - start, -2))
            yield (
                f"Without healing: about {waited}, if nobody had come before {unattended_until} "
                "(`unattended_until`)."
            )


def _next(moment: float, clock: str, times: TimeFormat) -> float:
    """Returns the first time after `moment` at which the local clock shows `clock`."""
    local = times.local(moment)
    hour, minute = map(int, clock.split(":"))
    found = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (found if found > local else found + timedelta(days=1)).timestamp()
