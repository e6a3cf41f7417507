"""llama.cpp's server: /health is constant after loading; /metrics is answered by its main loop.

As of 11434; /metrics needs --metrics (501 without), and all endpoints but /health need the key.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from trainwarden_exporter.inference.engine_stats import EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import (
    METRICS,
    InferenceEngine,
    served_models,
    server_activity,
)
from trainwarden_exporter.inference.http_messages import (
    SHORT_TIMEOUT,
    HttpRequest,
    HttpResponse,
    HttpResponses,
)

_RUNNING = "llamacpp:requests_processing"
_WAITING = "llamacpp:requests_deferred"
_GENERATED = "llamacpp:tokens_predicted_total"
_PROMPT = "llamacpp:prompt_tokens_total"
_DECODES = "llamacpp:n_decode_total"
# Only in older versions; newer ones do not report cache usage.
_KV_USAGE = "llamacpp:kv_cache_usage_ratio"


class LlamaCpp(InferenceEngine):
    name = "llama_cpp"
    liveness_path = "/health"
    own_result = "content"
    default_model = "default"
    metric_names = (_RUNNING, _WAITING, _GENERATED, _PROMPT, _DECODES, _KV_USAGE)
    passive_requests = (replace(METRICS, timeout=SHORT_TIMEOUT),)  # hangs if the main loop hangs

    def parse_liveness(self, response: HttpResponse) -> Liveness:
        unavailable = response.answered and response.status == HTTPStatus.SERVICE_UNAVAILABLE
        if unavailable and b"oading" in response.body:
            return Liveness.LOADING
        return super().parse_liveness(response)

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        metrics = self.metrics(responses)
        running, waiting = metrics.sum(_RUNNING), metrics.sum(_WAITING)
        page = responses.get("metrics")
        return EngineStats(
            activity=server_activity(
                metrics.total(_DECODES, _GENERATED, _PROMPT), running, waiting
            ),
            running=running,
            waiting=waiting,
            kv_usage=metrics.max(_KV_USAGE),
            generated_tokens=metrics.sum(_GENERATED),
            prompt_tokens=metrics.sum(_PROMPT),
            models=served_models(responses),
            loop_alive=False if page and not page.answered else None,
        )

    def completion_request(self, model: str | None, rank: str = "") -> HttpRequest | None:
        probe = self._config.deep_probe
        if probe.path is not None:
            return super().completion_request(model, rank)
        body = {"prompt": probe.prompt, "n_predict": 1, "temperature": 0, "cache_prompt": False}
        return self.post("/completion", body)
