"""Triton: answers 400 if it is not live or not ready, and has its metrics on another port.

As of server e1db8a6. The format of a completion depends on the model, so none is requested unless
a path of an OpenAI-compatible endpoint is configured.
"""

from __future__ import annotations

from trainwarden_exporter.inference.engine_stats import EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import (
    InferenceEngine,
    response_field,
    server_activity,
)
from trainwarden_exporter.inference.http_messages import HttpRequest, HttpResponses

METRICS_PORT = 8002

_WAITING = "nv_inference_pending_request_count"
_EXECUTIONS = "nv_inference_exec_count"
_SUCCESSES = "nv_inference_request_success"
_FAILURES = "nv_inference_request_failure"


class Triton(InferenceEngine):
    name = "triton"
    liveness_path = "/v2/health/ready"
    liveness_by_status = dict.fromkeys((400, 503), Liveness.NOT_READY)
    probes_completions = False
    completion_path = None
    metrics_port = METRICS_PORT
    metric_names = (_WAITING, _EXECUTIONS, _SUCCESSES, _FAILURES)
    rare_requests = (HttpRequest("models", "/v2/repository/index", "POST", {}),)

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        metrics = self.metrics(responses)
        waiting = metrics.sum(_WAITING)
        return EngineStats(
            activity=server_activity(metrics.total(_EXECUTIONS, _SUCCESSES, _FAILURES), waiting),
            waiting=waiting,
            errors=metrics.sum(_FAILURES),
            models=_ready_models(responses),
        )


def _ready_models(responses: HttpResponses) -> tuple[str, ...] | None:
    listed = response_field(responses, "models")
    if not isinstance(listed, list):
        return None
    entries = [entry for entry in listed if isinstance(entry, dict) and "name" in entry]
    return tuple(str(entry["name"]) for entry in entries if entry.get("state") == "READY")
