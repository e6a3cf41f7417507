"""SGLang: /health generates a token, and reports a paused server as dead.

As of 0.5.23 and earlier releases. /health is never requested: after 20 s of an intended pause it
answers 503 and marks the server as unhealthy, which then no longer drains on SIGTERM. Probed are
its flags (/ready since 0.5.20, /ping) and the last reports of its schedulers (/v1/loads): an idle
scheduler reports continuously, a paused one does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from trainwarden_exporter.inference.engine_stats import ActivityCounter, EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import (
    METRICS,
    MODELS,
    InferenceEngine,
    ProbeStage,
    response_field,
    served_models,
    server_activity,
)
from trainwarden_exporter.inference.http_messages import HttpRequest, HttpResponse, HttpResponses
from trainwarden_exporter.inference.metrics_parser import ParsedMetrics

_RUNNING = "sglang:num_running_reqs"
_WAITING = ("sglang:num_queue_reqs", "sglang:num_grammar_queue_reqs")
_KV_USAGE = "sglang:token_usage"
_PROMPT = "sglang:prompt_tokens_total"
_GENERATED = "sglang:generation_tokens_total"
_FORWARD = "sglang:forward_execution_seconds_total"
_REQUESTS = "sglang:num_requests_total"
_ABORTS = "sglang:num_aborted_requests_total"
_RETRACTIONS = "sglang:num_retracted_requests_total"
_RESPONSES = "sglang:http_responses_total"
_ACTIVE = "sglang:http_requests_active"

_PING = HttpRequest("ping", "/ping")
_LOADS = HttpRequest("loads", "/v1/loads?include=core")
_MODEL = HttpRequest("model", "/model_info")
_OLD_MODEL = HttpRequest("old_model", "/get_model_info")
_SCHEDULERS = HttpRequest("schedulers", "/server_info")
_OLD_SCHEDULERS = HttpRequest("old_schedulers", "/get_server_info")

# Prefixes of the endpoints of weight updates and of health checks.
_UPDATES = ("/update_weights_from_", "/begin_weight_update", "/end_weight_update")
_HEALTH_CHECKS = ("/health", "/ready", "/ping")
_MAX_RANKS = 1024


class Sglang(InferenceEngine):
    name = "sglang"
    liveness_path = "/ready"
    # Older versions lack the endpoint; a server that is not ready may be paused or starting.
    liveness_by_status = dict.fromkeys((404, 405, 501, 503), Liveness.SERVING)
    default_model = "default"
    metric_names = (
        *(_RUNNING, *_WAITING, _KV_USAGE, _PROMPT, _GENERATED, _FORWARD, _REQUESTS),
        *(_ABORTS, _RETRACTIONS, _RESPONSES, _ACTIVE),
    )

    def requests(
        self, stage: ProbeStage, responses: HttpResponses, *, failed: bool
    ) -> Iterable[HttpRequest]:
        not_ready = _is_unavailable(responses.get("liveness"))
        match stage:
            case ProbeStage.PASSIVE:
                yield METRICS
                yield _LOADS
                if not_ready:
                    yield _PING
            case ProbeStage.NO_PROGRESS:
                # Answered by each scheduler's loop, so it never returns if one hangs: requested
                # only to find out whether one does.
                if failed or (not_ready and not _succeeded(responses.get("ping"))):
                    yield _SCHEDULERS
                    if _is_unknown(responses.get("schedulers")):
                        yield _OLD_SCHEDULERS
            case ProbeStage.RARE:
                yield MODELS
                yield _MODEL
                if _is_unknown(responses.get("model")):
                    yield _OLD_MODEL

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        metrics = self.metrics(responses)
        versions = [response_field(responses, n, "weight_version") for n in ("model", "old_model")]
        loads = _loads(responses)
        loop_alive = _loop_alive(responses)
        return EngineStats(
            activity=_activity(metrics, loads),
            running=_metric_or_load(metrics.sum(_RUNNING), loads, "num_running_reqs"),
            waiting=_metric_or_load(metrics.total(*_WAITING), loads, "num_waiting_reqs"),
            kv_usage=metrics.max(_KV_USAGE),
            generated_tokens=metrics.sum(_GENERATED),
            prompt_tokens=metrics.sum(_PROMPT),
            preemptions=metrics.sum(_RETRACTIONS),
            errors=_server_errors(metrics),
            aborts=metrics.sum(_ABORTS),
            models=served_models(responses),
            weight_version=next((str(one) for one in versions if one is not None), None),
            unready=_is_unavailable(responses.get("liveness")),
            paused=_paused(responses, loop_alive),
            updating=_updating(metrics),
            loop_alive=loop_alive,
        )

    def completion_request(self, model: str | None, rank: str = "") -> HttpRequest | None:
        if self._config.deep_probe.path is not None:
            return super().completion_request(model or self._config.model, rank)
        # Token 0 instead of a text, because it may run without a tokenizer.
        sampling = {"max_new_tokens": 1, "temperature": 0}
        return self.post("/generate", {"input_ids": [0], "sampling_params": sampling}, rank)

    def has_token(self, body: Any) -> bool:
        return isinstance(body, dict) and any(body.get(key) for key in ("meta_info", "choices"))


def _is_unavailable(response: HttpResponse | None) -> bool:
    return bool(
        response and response.answered and response.status == HTTPStatus.SERVICE_UNAVAILABLE
    )


def _is_unknown(response: HttpResponse | None) -> bool:
    return bool(response and response.is_unknown_endpoint)


def _succeeded(response: HttpResponse | None) -> bool:
    return bool(response and response.succeeded)


def _paused(responses: HttpResponses, loop_alive: bool | None) -> bool | None:
    """Whether the server reports that it intentionally accepts no requests.

    /ping returns 200 in a pause, until a /health request of any client has timed out in it. Then,
    or if /ping needs a key, only the schedulers distinguish a pause from a hang.
    """
    if not _is_unavailable(responses.get("liveness")):
        return False if _succeeded(responses.get("liveness")) else None
    ping = responses.get("ping")
    if _succeeded(ping):
        return True
    if loop_alive is None and ping and ping.unauthorized:
        return True  # it reports that it is not ready
    return loop_alive


def _loop_alive(responses: HttpResponses) -> bool | None:
    response = responses.get("schedulers")
    if _is_unknown(response):
        response = responses.get("old_schedulers")
    if response is None or response.is_unknown_endpoint or response.unauthorized:
        return None
    return response.succeeded


def _loads(responses: HttpResponses) -> list[dict[str, Any]]:
    found = response_field(responses, "loads", "loads")
    if not isinstance(found, list):
        return []
    return [load for load in found[:_MAX_RANKS] if isinstance(load, dict)]


def _metric_or_load(value: float | None, loads: list[dict[str, Any]], key: str) -> float | None:
    """Returns `value` from the metrics, which are off by default, or the schedulers' sum."""
    values = [load[key] for load in loads if isinstance(load.get(key), int | float)]
    return value if value is not None or not values else float(sum(values))


def _activity(metrics: ParsedMetrics, loads: list[dict[str, Any]]) -> dict[str, ActivityCounter]:
    """Returns the last report of each scheduler, and the activity of the whole server."""
    activity = {
        str(load.get("dp_rank", 0)): ActivityCounter(
            float(load["timestamp"]), should_change=True, always_changes=True
        )
        for load in loads
        if isinstance(load.get("timestamp"), int | float)
    }
    done = metrics.total(_GENERATED, _PROMPT, _FORWARD)
    return activity | server_activity(done, metrics.total(_RUNNING, *_WAITING))


def _updating(metrics: ParsedMetrics) -> bool | None:
    active = metrics.samples(_ACTIVE)
    if not active:
        return None
    return any(
        one.value > 0 and one.labels.get("endpoint", "").startswith(_UPDATES) for one in active
    )


def _server_errors(metrics: ParsedMetrics) -> float | None:
    counts = [
        one.value if one.labels.get("status_code", "").startswith("5") else 0
        for one in metrics.samples(_RESPONSES)
        if not one.labels.get("endpoint", "").startswith(_HEALTH_CHECKS)
    ]
    return sum(counts) if counts else None
