"""The GPUs of a box: are they there, what do they do, who holds them, do they wear out."""

from __future__ import annotations

from boards import gpu_care, gpus, style, why
from boards.board import Board
from boards.layout import Row
from boards.panels import NAME, Graph, Stat
from boards.queries import Query, coded
from boards.style import NONE_IS_GOOD, codes, words
from boards.tables import Column, Table
from boards.variables import GPU, HOST, INSTANCE, RUN
from boards.verdict import ALERT_MARKS, START_MARKS

DRIVER_WORDS = words(
    ("ok", style.GOOD),
    ("absent", style.UNKNOWN),
    ("no devices", style.WARNING),
    ("failed", style.CRITICAL),
)
ONE = "{{instance}} GPU {{gpu}}"
_BY = "max by (gpu, uuid, instance)"


def _counted(title: str, about: str, text: str, empty_when: str = why.NO_GPU) -> Stat:
    return Stat(
        title=title,
        about=about,
        queries=[Query(text, "", empty_when)],
        unit=NAME,
        width=8,
        scale=NONE_IS_GOOD,
        empty="no GPU",
    )


BOARD = Board(
    uid="trainwarden-gpu",
    title="GPU",
    about="Are the GPUs present, busy, cool and healthy, and free of leftover processes?",
    variables=[INSTANCE, HOST, GPU, RUN],
    marks=[ALERT_MARKS, START_MARKS],
    rows=[
        Row(
            "Are they there?",
            [
                Stat(
                    title="Driver",
                    about="Good: ok. Absent is a box without one, which is healthy.",
                    queries=[
                        Query(
                            coded(
                                "trainwarden_gpu_driver_state{BOX}", "state", codes(DRIVER_WORDS)
                            ),
                            "{{instance}}",
                        )
                    ],
                    unit=NAME,
                    width=8,
                    meanings=DRIVER_WORDS,
                    empty="not seen",
                ),
                _counted(
                    "Missing",
                    "GPUs that should be there and are not, by the configuration or as they were "
                    "seen before. Good: 0; else TrainingGpuLost fires.",
                    """
                    sum(
                      clamp_min(
                        trainwarden_gpu_devices_expected{BOX}
                          - trainwarden_gpu_devices_found{BOX},
                        0
                      )
                    )
                    or sum(1 - trainwarden_gpu_up{BOX})
                    """,
                ),
                _counted(
                    "Row remapping pending or failed",
                    "GPUs that could not replace a bad part of their memory, or need a reset to "
                    "do so. Good: 0; else TrainingGpuRowRemap fires.",
                    "count(trainwarden_gpu_problem{GPU,"
                    'problem=~"row_remap_failed|row_remap_pending|retired_pages_pending"} > 0)'
                    " or 0 * count(trainwarden_gpu_up{GPU})",
                    why.NO_GPU,
                ),
                Table(
                    title="GPUs",
                    about="What they are, and how they are set up. Good: all answer.",
                    queries=[
                        Query(
                            "max by (gpu, uuid, name, pci_bus_id, instance)"
                            " (trainwarden_gpu_info{GPU})",
                            "info",
                            why.NO_GPU,
                        ),
                        Query(f"{_BY} (trainwarden_gpu_up{{GPU}})", "answers", why.NO_GPU),
                        Query(
                            f"{_BY} (trainwarden_gpu_memory_total_bytes{{GPU}})",
                            "memory",
                            why.NO_GPU,
                        ),
                        Query(
                            f"{_BY} (trainwarden_gpu_pcie_link_width{{GPU}})",
                            "lanes",
                            why.NO_GPU,
                        ),
                        Query(
                            f"{_BY} (trainwarden_gpu_persistence_mode{{GPU}})",
                            "persistence",
                            why.NO_GPU,
                        ),
                        Query(f"{_BY} (trainwarden_gpu_mig_mode{{GPU}})", "MIG", why.NO_GPU),
                        Query(
                            f'{_BY} (trainwarden_gpu_compute_mode{{GPU,mode="default"}})',
                            "shared",
                            why.NO_GPU,
                        ),
                    ],
                    width=24,
                    height=6,
                    columns=[
                        Column(name="gpu", title="GPU", width=60),
                        Column(name="name", width=220),
                        Column(
                            name="answers",
                            meanings=words(("no", style.CRITICAL), ("yes", style.GOOD)),
                        ),
                        Column(name="memory", unit="bytes"),
                        Column(name="lanes", title="PCIe lanes"),
                        Column(
                            name="persistence",
                            meanings=words(("off", style.UNKNOWN), ("on", style.GOOD)),
                        ),
                        Column(
                            name="MIG", meanings=words(("off", style.UNKNOWN), ("on", style.CALM))
                        ),
                        Column(
                            name="shared",
                            title="several processes",
                            meanings=words(("kept out", style.WARNING), ("may use it", style.GOOD)),
                        ),
                        Column(name="pci_bus_id", title="PCI"),
                        Column(name="uuid", width=320),
                        Column(name="instance"),
                    ],
                ),
            ],
        ),
        Row(
            "What they do",
            [
                gpus.utilization(),
                gpus.memory_share(),
                Graph(
                    title="Power",
                    about="Drawn, and what may be drawn. Good: under the line under full load.",
                    queries=[
                        Query("trainwarden_gpu_power_watts{GPU}", ONE, why.NO_GPU),
                        Query(
                            "trainwarden_gpu_power_limit_watts{GPU}",
                            f"{ONE} limit",
                            why.NO_GPU,
                            limit=True,
                        ),
                    ],
                    unit="watt",
                ),
                Graph(
                    title="Temperature",
                    about=(
                        "By place, and where the hardware slows down. Good: well under the line."
                    ),
                    queries=[
                        Query(
                            "trainwarden_gpu_temperature_celsius{GPU}",
                            f"{ONE} {{{{sensor}}}}",
                            why.NO_GPU,
                        ),
                        Query(
                            "trainwarden_gpu_temperature_slowdown_celsius{GPU}",
                            f"{ONE} slows down",
                            why.NO_GPU,
                            limit=True,
                        ),
                    ],
                    unit="celsius",
                ),
                gpus.throttled(),
            ],
        ),
        gpu_care.HOLDERS,
        gpu_care.WEAR,
    ],
)
