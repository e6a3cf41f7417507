"""TGI (text-generation-inference): /health checks the device, and after a failure also generates.

As of v3.3.7, its last feature release; it is in maintenance mode.
"""

from __future__ import annotations

from trainwarden_exporter.inference.engine_stats import EngineStats
from trainwarden_exporter.inference.engines.base import (
    InferenceEngine,
    response_field,
    server_activity,
)
from trainwarden_exporter.inference.http_messages import HttpRequest, HttpResponses

_RUNNING = "tgi_batch_current_size"
_WAITING = "tgi_queue_size"
_CALLS = "tgi_batch_inference_count"
_SUCCESSES = "tgi_request_success"
_FAILURES = "tgi_request_failure"
_GENERATED = "tgi_request_generated_tokens_sum"
_PROMPT = "tgi_request_input_length_sum"


class Tgi(InferenceEngine):
    name = "tgi"
    liveness_path = "/health"
    own_result = "generated_text"
    default_model = "tgi"
    metric_names = (_RUNNING, _WAITING, _CALLS, _SUCCESSES, _FAILURES, _GENERATED, _PROMPT)
    rare_requests = (HttpRequest("info", "/info"),)

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        metrics = self.metrics(responses)
        running, waiting = metrics.sum(_RUNNING), metrics.sum(_WAITING)
        model = response_field(responses, "info", "model_id")
        return EngineStats(
            activity=server_activity(
                metrics.total(_CALLS, _SUCCESSES, _FAILURES), running, waiting
            ),
            running=running,
            waiting=waiting,
            generated_tokens=metrics.sum(_GENERATED),
            prompt_tokens=metrics.sum(_PROMPT),
            errors=metrics.sum(_FAILURES),
            models=None if model is None else (str(model),),
        )

    def completion_request(self, model: str | None, rank: str = "") -> HttpRequest | None:
        probe = self._config.deep_probe
        if probe.path is not None:
            return super().completion_request(model, rank)
        body = {"max_new_tokens": 1, "do_sample": False}
        return self.post("/generate", {"inputs": probe.prompt, "parameters": body})
