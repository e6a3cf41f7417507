"""Of the board of GPUs: who holds them, and whether they wear out."""

from __future__ import annotations

from boards import gpus, why
from boards.layout import Row
from boards.panels import COUNT, SHARE, Graph
from boards.queries import Query

ONE = "{{instance}} GPU {{gpu}}"
OF = "{{instance}} "


HOLDERS = Row(
    "Who holds them",
    [
        gpus.worker_memory('{GPU,run=~"$run"}', OF, 12),
        Graph(
            title="GPU utilisation by worker",
            about="Share of time in which each computed, if the driver reports it. Good: even.",
            queries=[
                Query(
                    'trainwarden_worker_gpu_utilization_ratio{GPU,run=~"$run"}',
                    "{{worker}} on {{gpu}}",
                    why.NO_GPU_HELD,
                )
            ],
            unit=SHARE,
            high=1,
            width=12,
        ),
        gpus.leftovers("{BOX}", OF),
        Graph(
            title="Memory held by leftovers",
            about="As the driver lists it. Good: 0.",
            queries=[
                Query(
                    "trainwarden_gpu_orphan_memory_bytes{GPU}",
                    ONE,
                    why.NO_GPU_OR_WORKER,
                )
            ],
            unit="bytes",
        ),
        Graph(
            title="Hidden GPU processes",
            about=(
                "Leftovers that the driver lists nowhere, processes that it lists and "
                "that cannot be found here, and monitors that only look. Good: 0, but for "
                "monitors."
            ),
            queries=[
                Query(
                    "sum(trainwarden_gpu_orphan_holders_unlisted{BOX})",
                    "leftovers not listed",
                    why.NO_GPU_OR_WORKER,
                ),
                Query(
                    "sum(trainwarden_gpu_processes_unmapped{GPU})",
                    "not found",
                    why.NO_GPU,
                ),
                Query(
                    "sum(trainwarden_gpu_observers{BOX})",
                    "only look",
                    why.NO_GPU_OR_WORKER,
                ),
                Query(
                    "sum(trainwarden_gpu_holders_unreadable_processes{BOX})",
                    "may not be looked into",
                    why.NO_GPU,
                ),
            ],
            unit=COUNT,
            decimals=0,
        ),
    ],
)

WEAR = Row(
    "Do they wear out?",
    [
        gpus.xids("{GPU}", 12),
        Graph(
            title="Memory errors, since the driver was loaded",
            about=(
                "Good: none that are not corrected; corrected ones that grow fast precede them."
            ),
            queries=[
                Query(
                    'trainwarden_gpu_ecc_errors_total{GPU,scope="volatile"}',
                    f"{ONE} {{{{severity}}}}",
                    why.NO_ECC,
                )
            ],
            unit=COUNT,
            width=12,
            stepped=True,
        ),
        Graph(
            title="Remapped memory rows",
            about="Good: none, or few that stay few. Those not corrected are the worse.",
            queries=[
                Query(
                    "trainwarden_gpu_remapped_rows{GPU}",
                    f"{ONE} {{{{severity}}}}",
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
            title="PCIe replays",
            about="Good: 0, or few. Many are a bad slot, riser or cable.",
            queries=[
                Query(
                    "rate(trainwarden_gpu_pcie_replays_total{GPU}[$__rate_interval])",
                    ONE,
                    why.NO_GPU,
                )
            ],
            unit="cps",
        ),
        Graph(
            title="Errors of NVLinks",
            about="Good: 0.",
            queries=[
                Query(
                    "sum by (gpu, kind, instance) ("
                    "rate(trainwarden_gpu_nvlink_errors_total{GPU}[$__rate_interval]))",
                    f"{ONE} {{{{kind}}}}",
                    why.NO_NVLINK,
                )
            ],
            unit="cps",
        ),
    ],
)
