"""vLLM: /health is only a flag, and the gauges freeze together with the engine.

As of 0.33.0 and earlier releases, observed with 0.32.0: /health returns 200 while a worker is
frozen; gauges change only with the engine's output, so an engine that hangs while idle looks idle,
and only a completion reveals it.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from trainwarden_exporter.inference.engine_stats import ActivityCounter, EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import (
    MODELS,
    InferenceEngine,
    ProbeStage,
    response_field,
    served_models,
)
from trainwarden_exporter.inference.http_messages import HttpRequest, HttpResponse, HttpResponses
from trainwarden_exporter.inference.metrics_parser import ParsedMetrics

_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
# Renamed in 0.9.2; the old name was removed in 0.12.
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_PROMPT = "vllm:prompt_tokens_total"
_GENERATED = "vllm:generation_tokens_total"
_FINISHED = "vllm:request_success_total"
_ITERATIONS = "vllm:iteration_tokens_total_count"
_PREEMPTIONS = "vllm:num_preemptions_total"
_REJECTIONS = "vllm:admission_rejections_total"
_SLEEP = "vllm:engine_sleep_state"
_SLEEP_CHANGES = "vllm:sleep_mode_operations_in_flight"
_UPDATES = "vllm:rl_weight_update_operations_in_flight"

_PAUSED = HttpRequest("paused", "/is_paused")
_ASLEEP = HttpRequest("asleep", "/is_sleeping")
_LOAD = HttpRequest("load", "/load")


class Vllm(InferenceEngine):
    name = "vllm"
    liveness_path = "/health"
    rare_requests = (MODELS, HttpRequest("weights", "/weight_info"))
    metric_names = (
        *(_RUNNING, _WAITING, *_KV_USAGE, _PROMPT, _GENERATED, _FINISHED, _ITERATIONS),
        *(_PREEMPTIONS, _REJECTIONS, _SLEEP, _SLEEP_CHANGES, _UPDATES),
    )

    def parse_liveness(self, response: HttpResponse) -> Liveness:
        # A dead engine: 503 since 0.11, 500 before. The 503 of a proxy, or of vLLM while it scales
        # its experts, has a body.
        if response.answered and response.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return Liveness.BAD if response.body.strip() else Liveness.DEAD
        if response.answered and response.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return Liveness.DEAD
        return super().parse_liveness(response)

    def requests(
        self, stage: ProbeStage, responses: HttpResponses, *, failed: bool
    ) -> Iterable[HttpRequest]:
        yield from super().requests(stage, responses, failed=failed)
        if stage is ProbeStage.NO_PROGRESS:
            # Both need VLLM_SERVER_DEV_MODE=1; without it the server cannot be paused over HTTP.
            yield _PAUSED
            if "paused" in responses and responses["paused"].is_unknown_endpoint:
                yield _ASLEEP  # before 0.12
            yield _LOAD

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        metrics = self.metrics(responses)
        version = response_field(responses, "weights", "weight_version")
        models = served_models(responses)
        if models is None:
            models = tuple(filter(None, metrics.sums_by("model_name", _RUNNING))) or None
        return EngineStats(
            activity=_activity(metrics, responses),
            running=metrics.sum(_RUNNING),
            waiting=metrics.sum(_WAITING),
            kv_usage=metrics.max(*_KV_USAGE),
            generated_tokens=metrics.sum(_GENERATED),
            prompt_tokens=metrics.sum(_PROMPT),
            preemptions=metrics.sum(_PREEMPTIONS),
            errors=metrics.sum(_FINISHED, finished_reason="error"),
            aborts=metrics.sum(_FINISHED, finished_reason="abort"),
            rejections=metrics.sum(_REJECTIONS),
            models=models,
            weight_version=None if version is None else str(version),
            paused=_flag(responses, "paused", "is_paused"),
            sleeping=_sleeping(metrics, responses),
            updating=_is_positive(metrics.sum(_UPDATES)),
            loop_alive=_loop_alive(responses),
        )


def _activity(metrics: ParsedMetrics, responses: HttpResponses) -> dict[str, ActivityCounter]:
    """Returns the activity of each engine; each has its own loop and may hang alone."""
    done: dict[str, float] = {}
    for name in (_ITERATIONS, _GENERATED, _PROMPT, _FINISHED):
        for engine, count in metrics.sums_by("engine", name).items():
            done[engine] = done.get(engine, 0.0) + count
    in_flight = metrics.sums_by("engine", _RUNNING)
    for engine, count in metrics.sums_by("engine", _WAITING).items():
        in_flight[engine] = in_flight.get(engine, 0.0) + count
    # Always 0 without --enable-server-load-tracking; a sum over all engines.
    server_load = response_field(responses, "load", "server_load")
    has_load = isinstance(server_load, int | float) and server_load > 0
    return {
        engine: ActivityCounter(
            count, should_change=in_flight.get(engine, 0) > 0 or (has_load and len(done) == 1)
        )
        for engine, count in done.items()
    }


def _sleeping(metrics: ParsedMetrics, responses: HttpResponses) -> bool | None:
    states = [
        metrics.sum(_SLEEP, sleep_state=state) for state in ("weights_offloaded", "discard_all")
    ]
    changing = _is_positive(metrics.sum(_SLEEP_CHANGES))
    if states != [None, None]:
        return sum(state or 0 for state in states) > 0 or bool(changing)
    return changing or _flag(responses, "asleep", "is_sleeping")


def _is_positive(count: float | None) -> bool | None:
    return None if count is None else count > 0


def _flag(responses: HttpResponses, name: str, key: str) -> bool | None:
    value = response_field(responses, name, key)
    return value if isinstance(value, bool) else None


def _loop_alive(responses: HttpResponses) -> bool | None:
    """False if the engine's loop did not answer; an answer does not prove that it works."""
    received = [responses[name] for name in ("paused", "asleep") if name in responses]
    return None if all(response.answered for response in received) else False
