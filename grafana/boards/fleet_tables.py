"""Of the board of many boxes: its runs, its boxes and its remediators, one by one."""

from __future__ import annotations

from boards import limits, style, why
from boards.layout import Row
from boards.panels import BYTES, NAME, SECONDS, SHARE
from boards.queries import Query, coded
from boards.style import NONE_IS_GOOD, falling, rising, words
from boards.tables import Column, Table
from boards.verdict import PHASE_WORDS, PHASES, VERDICTS, standing

_RUN = "max by (run, instance)"
_BOX = "max by (instance)"
OF_A_RUN = "0 * (1 + trainwarden_training_finished{BOX})"

TABLES = Row(
    "Runs and hosts",
    [
        Table(
            title="Runs in detail",
            about="One row for each run on each box; a run leads to its board. Good: green.",
            queries=[
                Query(
                    standing('ALERT_OF_BOX,run!=""', " by (run, instance) ", OF_A_RUN), "verdict"
                ),
                Query(
                    f"{_RUN} ({coded('trainwarden_training_phase{BOX}', 'phase', PHASES)})",
                    "phase",
                    why.NO_STEPS,
                ),
                Query(f"{_RUN} (trainwarden_training_step{{BOX}})", "step", why.NO_STEPS),
                Query(
                    f"{_RUN} (trainwarden_training_step{{BOX}}"
                    " / trainwarden_training_total_steps{BOX})",
                    "done",
                    why.NO_TOTAL,
                ),
                Query(
                    f"{_RUN} (run:trainwarden_training_stall:ratio{{BOX}})",
                    "quiet",
                    why.RUN_OVER,
                ),
                Query(
                    f"1000 * {_RUN} (trainwarden_checkpoint_timestamp_seconds{{BOX}})",
                    "saved",
                    why.NO_CHECKPOINTS,
                ),
                Query(
                    """
                    sum by (run, instance) (
                      clamp_min(
                        trainwarden_worker_expected_processes{BOX}
                          - trainwarden_worker_processes{BOX},
                        0
                      )
                      * (1 - trainwarden_worker_finished{BOX})
                    )
                    """,
                    "missing",
                    why.NO_WORKERS,
                ),
                Query(
                    "sum by (run, instance) (1 - trainwarden_inference_up{BOX})",
                    "down",
                    why.NO_SERVERS,
                ),
            ],
            width=24,
            columns=[
                Column(name="run", url="/d/trainwarden-run?var-run=${__value.text}"),
                Column(name="verdict", meanings=VERDICTS),
                Column(name="phase", meanings=PHASE_WORDS),
                Column(name="step", unit=NAME),
                Column(name="done", unit=SHARE, decimals=0),
                Column(
                    name="quiet",
                    title="silence, relative to the limit",
                    unit=SHARE,
                    decimals=0,
                    scale=rising(limits.NEARLY_STALLED.value, limits.STALLED.value),
                ),
                Column(name="saved", title="checkpoint", unit="dateTimeFromNow"),
                Column(name="missing", title="workers missing", scale=NONE_IS_GOOD),
                Column(name="down", title="servers down", scale=NONE_IS_GOOD),
                Column(name="instance", url="/d/trainwarden-run?var-instance=${__value.text}"),
            ],
            sorted_by="verdict",
        ),
        Table(
            title="Hosts in detail",
            about="One row for each host, which links to its board. Good: green.",
            queries=[
                Query(standing("ALERT_OF_BOX", " by (instance) "), "verdict"),
                Query(f'{_BOX} (up{{BOX,job="trainwarden-exporter"}})', "seen"),
                Query(
                    f"{_BOX} (trainwarden_memory_effective_available_bytes{{BOX}}"
                    " - trainwarden_memory_available_floor_bytes{BOX})",
                    "memory",
                ),
                Query(
                    f'{_BOX} (trainwarden_host_load_average{{BOX,period="5m"}}'
                    " / on (instance, job) trainwarden_host_cpus{BOX})",
                    "load",
                ),
                Query(f"{_BOX} (trainwarden_gpu_devices_found{{BOX}})", "GPUs", why.NO_GPU),
                Query(
                    "avg by (instance) (trainwarden_gpu_utilization_ratio{BOX})",
                    "GPUs busy",
                    why.NO_GPU,
                ),
                Query(
                    "sum by (instance) (trainwarden_gpu_orphan_holders{BOX})",
                    "leftovers",
                    why.NO_GPU,
                ),
                Query(
                    "min by (instance)"
                    " (trainwarden_disk_free_bytes{BOX} / trainwarden_disk_size_bytes{BOX})",
                    "disk",
                    why.NO_DISKS,
                ),
                Query(
                    f"time() - {_BOX} (trainwarden_host_boot_timestamp_seconds{{BOX}})", "up for"
                ),
            ],
            width=24,
            columns=[
                Column(name="instance", url="/d/trainwarden-run?var-instance=${__value.text}"),
                Column(name="verdict", meanings=VERDICTS),
                Column(name="seen", meanings=words(("no", style.CRITICAL), ("yes", style.GOOD))),
                Column(
                    name="memory",
                    title="memory above floor",
                    unit=BYTES,
                    decimals=1,
                    scale=falling(None, 0),
                ),
                Column(name="load", title="load per processor", decimals=2),
                Column(name="GPUs"),
                Column(name="GPUs busy", unit=SHARE, decimals=0),
                Column(name="leftovers", title="left over on GPUs", scale=NONE_IS_GOOD),
                Column(name="disk", title="least free on a disk", unit=SHARE, decimals=0),
                Column(name="up for", unit=SECONDS, decimals=0),
            ],
            sorted_by="verdict",
        ),
        Table(
            title="Remediators",
            about="One row for each. Good: acts, receives alerts, and needs no operator.",
            queries=[
                Query(
                    f'{_BOX} (trainwarden_remediator_mode{{HEALER,mode="act"}})',
                    "mode",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    f"{_BOX} (trainwarden_remediator_paused{{HEALER}})", "held", why.NO_REMEDIATOR
                ),
                Query(
                    "time() - max by (instance)"
                    " (trainwarden_remediator_watchdog_timestamp_seconds{HEALER})",
                    "heartbeat",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    f"{_BOX} (trainwarden_remediator_open_incidents{{HEALER}})",
                    "open",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    "sum by (instance) (trainwarden_remediator_incident_abandoned{HEALER})"
                    f" or 0 * {_BOX} (trainwarden_remediator_open_incidents{{HEALER}})",
                    "waits",
                    why.NO_REMEDIATOR,
                ),
            ],
            width=24,
            height=6,
            columns=[
                Column(name="instance"),
                Column(name="mode", meanings=words(("observes", style.CALM), ("acts", style.GOOD))),
                Column(name="held", meanings=words(("no", style.GOOD), ("held", style.WARNING))),
                Column(
                    name="heartbeat",
                    title="last heartbeat",
                    unit=SECONDS,
                    decimals=0,
                    scale=rising(None, limits.DEAF.value),
                ),
                Column(name="open", title="open incidents"),
                Column(name="waits", title="needs an operator", scale=NONE_IS_GOOD),
            ],
        ),
    ],
)
