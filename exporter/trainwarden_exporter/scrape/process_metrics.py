"""Metrics of the exporter itself."""

from __future__ import annotations

from trainwarden_exporter.scrape.collector import Metric

BUILD_INFO = Metric(
    "trainwarden_build_info",
    "gauge",
    "Always 1; labels: versions of Trainwarden and of Python.",
    ("version", "python_version"),
)
WEB_RELOAD_SUCCESS = Metric(
    "trainwarden_web_config_last_reload_successful",
    "gauge",
    "Whether the last load of the web configuration file succeeded; absent without a file.",
)


# The same metrics as prometheus_client's ProcessCollector.
PROCESS_METRICS = (
    Metric("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
    Metric(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
    ),
    Metric(
        "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."
    ),
    Metric("process_open_fds", "gauge", "Number of open file descriptors."),
    Metric("process_max_fds", "gauge", "Maximum number of open file descriptors."),
)
