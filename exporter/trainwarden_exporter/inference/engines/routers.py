"""The routers of SGLang and vLLM, which know their servers' state from the servers themselves.

A ready router has a server that answers /health, which may still hang (observed with both); the
servers behind it therefore need probes of their own.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar

from trainwarden_exporter.inference.engine_stats import EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import (
    InferenceEngine,
    served_models,
    server_activity,
)
from trainwarden_exporter.inference.http_messages import HttpResponses

METRICS_PORT = 29000


class Router(InferenceEngine):
    """A router whose /readiness reports whether it has a server for requests."""

    liveness_path = "/readiness"
    liveness_by_status = {HTTPStatus.SERVICE_UNAVAILABLE: Liveness.NOT_READY}  # noqa: RUF012
    probes_completions = False
    metrics_port = METRICS_PORT
    health: ClassVar[str]
    """Gauge: whether a server is healthy, by server."""
    active: ClassVar[str]
    """Gauge: requests in flight, by server."""
    answered: ClassVar[str]
    """Counter: answered requests, by server."""

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        metrics = self.metrics(responses)
        servers = metrics.samples(self.health)
        return EngineStats(
            # A request may take any time, so a lack of activity proves nothing.
            activity=server_activity(metrics.sum(self.answered)),
            running=metrics.sum(self.active),
            models=served_models(responses),
            backends=float(len(servers)) if servers else None,
            healthy_backends=metrics.sum(self.health),
        )


class SglangRouter(Router):
    name = "sglang_router"
    health = "smg_worker_health"
    active = "smg_worker_requests_active"
    answered = "smg_router_upstream_responses_total"
    metric_names = (health, active, answered)


class VllmRouter(Router):
    name = "vllm_router"
    health = "vllm_router_worker_health"
    active = "vllm_router_running_requests"
    answered = "vllm_router_processed_requests_total"
    metric_names = (health, active, answered)
