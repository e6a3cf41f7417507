"""The faults of a night that come again: how often, at which pace, and what mends them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_remediator.journal.recurrence import describe_recurrence
from trainwarden_remediator.policy.failing_starts import mend_hint
from trainwarden_remediator.report.markdown import code, text
from trainwarden_remediator.report.model import IncidentRecord

REPEATS = 2
"""Number of incidents of the same kind from which on they repeat."""


def repeats(incidents: Sequence[IncidentRecord]) -> Iterator[str]:
    """Yields `demo/inference: TrainingInferenceDown 3 times in 13 min`, the most frequent first."""
    by_kind: dict[tuple[str, str], list[IncidentRecord]] = defaultdict(list)
    for one in incidents:
        by_kind[one.name, one.alert].append(one)
    for (name, alert), own in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        if len(own) >= REPEATS:
            times = [one.starts_at for one in own]
            within = format_duration(round(max(times) - min(times)))
            often = f"{text(alert)} {len(own)} times in {within}."
            again = text(_healed_again(own))
            yield f"{code(name)}: {often}{again and f' {again}'}"


def _healed_again(incidents: Sequence[IncidentRecord]) -> str:
    """Returns at which pace a fault comes again that each restart heals, and what mends it."""
    outcomes = (
        e for one in reversed(incidents) for e in reversed(one.events) if e.kind == "outcome"
    )
    last = next(outcomes, None)
    again = "" if last is None else describe_recurrence(last)
    return f"Healed {again}. {mend_hint(incidents[-1].alert)}" if again else ""
