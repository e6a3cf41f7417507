"""Panels of the night report: numbers of the run, and of the host."""

from __future__ import annotations

from boards import limits, why
from boards.layout import Row
from boards.panels import COUNT, SHARE, number
from boards.queries import gained
from boards.style import NONE_IS_GOOD, falling, rising

BOX = Row(
    "Host",
    [
        number(
            "OOM kills",
            "Good: 0.",
            "sum(round(increase(trainwarden_memory_oom_kills_total{BOX}[$__range])))",
            "",
            NONE_IS_GOOD,
        ),
        number(
            "Hosts rebooted",
            "Whose boot time has moved by more than a minute. Good: 0.",
            """
            sum(
              max_over_time(trainwarden_host_boot_timestamp_seconds{BOX}[$__range])
                - min_over_time(trainwarden_host_boot_timestamp_seconds{BOX}[$__range]) > bool 60
            )
            """,
            "",
            NONE_IS_GOOD,
        ),
        number(
            "Errors of GPU drivers",
            "XIDs. Good: 0, while they are watched.",
            f"sum({gained('trainwarden_gpu_xid_errors_total{BOX}')})"
            " or 0 * max(trainwarden_gpu_xid_watching{BOX} == 1)",
            why.NO_XID_WATCH,
            NONE_IS_GOOD,
            empty="not watched",
        ),
        number(
            "Least memory above the floor",
            "Good: far above 0.",
            """
            min(
              min_over_time(trainwarden_memory_effective_available_bytes{BOX}[$__range])
                - trainwarden_memory_available_floor_bytes{BOX}
            )
            """,
            "",
            falling(None, 0),
            unit="bytes",
        ),
        number(
            "Fewest checkpoints that fitted",
            "Good: many.",
            "min(min_over_time(trainwarden_disk_checkpoints_left{RUN}[$__range]))",
            why.NO_CHECKPOINTS,
            falling(limits.LITTLE_ROOM.value, limits.NO_ROOM.value),
            unit=COUNT,
            empty="none known",
        ),
        number(
            "Time without scrapes",
            "Share of the time in which the exporter did not answer. Good: 0.",
            'max(1 - avg_over_time(up{BOX,job="trainwarden-exporter"}[$__range]))',
            "",
            rising(0.001, 0.05),
            unit=SHARE,
        ),
    ],
)
