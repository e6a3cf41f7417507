"""The reasons for empty panels that the demo run has."""

from __future__ import annotations

from boards import why

OF_THE_DEMO = frozenset(
    {
        why.NO_AGE_LIMIT,
        why.NO_TRIALS_LIMIT,
        why.NO_RECORD,
        why.NO_COPIES,
        why.NO_PROBE,
        why.NO_VERSION,
        why.NO_POLICY,
        why.NO_STALENESS_LIMIT,
        why.NO_ROUTER,
        why.NO_CONTAINERS,
        why.NO_HEALTH_CHECK,
        why.NO_SILENCE_LIMIT,
        why.NO_HEARTBEATS,
        why.NO_SUCH_NUMBER,
        why.NO_ROW,
        why.NOT_COUNTED,
        why.NO_RETIRING,
        why.NO_NVLINK,
        why.NO_PRESSURE,
        why.NO_ALERT,
        why.NO_ACTION,
        why.NO_XID,
        why.NO_MATCH,
        why.NO_CONTAINER_ENDED,
        why.NO_INTERRUPTION,
        why.NO_PRICE,
        why.NOT_STARTING,
        why.NOBODY_WAITS,
        why.NO_END_LATELY,
    }
)
"""The reasons that hold, or may hold at any moment, in the demo run. The tests check that every
query that may be empty for no other reason has data there."""
