"""Of the board of GPUs: who holds them, and whether they wear out."""

from __future__ import annotations

from boards import gpus, why
from boards.layout import Row
from boards.panels import COUNT, Graph
from boards.queries import Query

ONE = "{{instance}} GPU {{gpu}}"


HOLDERS = Row(
    "Who holds them",
    [
        gpus.worker_memory(),
        gpus.leftovers(),
    ],
)

WEAR = Row(
    "Do they wear out?",
    [
        gpus.xids(),
        Graph(
            title="Memory errors, and rows replaced for them",
            about=(
                "Since the driver was loaded. Good: none that are not corrected, and few rows that "
                "stay few; corrected errors that grow fast precede the others."
            ),
            queries=[
                Query(
                    'trainwarden_gpu_ecc_errors_total{GPU,scope="volatile"}',
                    f"{ONE} {{{{severity}}}}",
                    why.NO_ECC,
                ),
                Query(
                    "trainwarden_gpu_remapped_rows{GPU}",
                    f"{ONE} rows: {{{{severity}}}}",
                    why.NO_REMAPPING,
                ),
                Query(
                    "trainwarden_gpu_retired_pages{GPU}",
                    f"{ONE} pages: {{{{cause}}}}",
                    why.NO_RETIRING,
                ),
            ],
            unit=COUNT,
            stepped=True,
        ),
        Graph(
            title="Errors of links",
            about="PCIe replays, and errors of NVLinks. Good: 0. Many replays are a bad slot, "
            "riser or cable.",
            queries=[
                Query(
                    "rate(trainwarden_gpu_pcie_replays_total{GPU}[$__rate_interval])",
                    f"{ONE} PCIe",
                    why.NO_GPU,
                ),
                Query(
                    "sum by (gpu, kind, instance) ("
                    "rate(trainwarden_gpu_nvlink_errors_total{GPU}[$__rate_interval]))",
                    f"{ONE} NVLink {{{{kind}}}}",
                    why.NO_NVLINK,
                ),
            ],
            unit="cps",
        ),
    ],
)
