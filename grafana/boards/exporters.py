"""Panels about the exporter itself that several boards have."""

from __future__ import annotations

from boards import limits, style, why
from boards.panels import SECONDS, Graph, Timeline
from boards.queries import Query
from boards.style import rising, words

WATCHES = (
    ("checkpoint_seen", "checkpoints of {{run}}", why.NO_CHECKPOINTS),
    ("rollout_seen", "rollouts of {{run}}", why.NO_ROLLOUTS),
    ("log_seen", "logs of {{run}}", why.NO_LOGS),
    ("inference_seen", "servers of {{run}}", why.NO_SERVERS),
    ("container_seen", "containers of {{run}}", why.NO_CONTAINERS),
)
"""(beginning of a metric, what it is about, why there may be none)"""


def collectors(width: int, height: int = 8, of: str = "") -> Timeline:
    return Timeline(
        title="Collectors",
        about=(
            "Whether each collector succeeded, also when it has nothing to report. Good: all. "
            "A collector that fails for a minute is TrainingCollectorFailing: its values are "
            "unknown, and no stale values are shown in their place."
        ),
        queries=[Query("trainwarden_collector_success{BOX}", f"{of}{{{{collector}}}}")],
        width=width,
        height=height,
        meanings=words(("fails", style.CRITICAL), ("sees", style.GOOD)),
    )


def blind(width: int, height: int = 8) -> Graph:
    """Age of the last background observations."""
    queries = [
        Query(
            f"max by (run, instance) (time() - trainwarden_{what}_timestamp_seconds{{BOX}})",
            legend,
            reason,
        )
        for what, legend, reason in WATCHES
    ]
    queries.append(
        Query(
            "time() - trainwarden_disk_seen_timestamp_seconds{BOX}",
            "{{instance}} disk {{path}}",
            why.NO_DISKS,
        )
    )
    return Graph(
        title="Age of background observations",
        about=(
            "How long ago. Good: seconds. After a minute TrainingWatchBlind warns: a mount, a "
            "socket or a server hangs, and what is known of it is the past."
        ),
        queries=queries,
        unit=SECONDS,
        width=width,
        height=height,
        scale=rising(limits.BLIND.value, None),
        shaded=True,
    )
