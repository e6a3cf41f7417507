"""SGLang: its /health generates, and calls a server dead that is only paused.

Read from 0.5.23 and earlier releases. /health is never asked: after 20 s of a healthy pause it
answers 503, and marks the server as unhealthy besides, so that a SIGTERM no longer lets it drain.
Its flags are asked instead (/ready since 0.5.20, /ping), and when its schedulers last said how
they are (/v1/loads): an idle one says so all the time, a paused one does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from trainwarden_exporter.inference.engines.base import METRICS, Engine, Stage, added, models_of
from trainwarden_exporter.inference.questions import Answer, Answers, Question
from trainwarden_exporter.inference.reading import Beat, Life, Reading
from trainwarden_exporter.inference.series import Series

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

_PING = Question("ping", "/ping")
_LOADS = Question("loads", "/v1/loads?include=core")
_MODEL = Question("model", "/model_info")
_OLD_MODEL = Question("old_model", "/get_model_info")
_SCHEDULERS = Question("schedulers", "/server_info")
_OLD_SCHEDULERS = Question("old_schedulers", "/get_server_info")

_UPDATES = ("/update_weights_from_", "/begin_weight_update", "/end_weight_update")
_FLAGS = ("/health", "/ready", "/ping")
_FIRST_TOKEN = 0
_MOST_RANKS = 1024


class Sglang(Engine):
    name = "sglang"
    wanted = (
        *(_RUNNING, *_WAITING, _KV_USAGE, _PROMPT, _GENERATED, _FORWARD, _REQUESTS),
        *(_ABORTS, _RETRACTIONS, _RESPONSES, _ACTIVE),
    )

    @property
    def liveness(self) -> Question:
        return Question("life", "/ready", patience=None)

    def life(self, answer: Answer) -> Life:
        # Not to be ready is no fault by itself, and an older one has no such endpoint.
        if answer.answered and (answer.unknown_here or _is_unavailable(answer)):
            return Life.SERVING
        return super().life(answer)

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        not_ready = _is_unavailable(answers.get("life"))
        match stage:
            case Stage.PASSIVE:
                yield METRICS
                yield _LOADS
                if not_ready:
                    yield _PING
            case Stage.DOUBT:
                # Takes a turn of every scheduler's loop, and so waits for ever at one that hangs:
                # asked only where that is the question.
                if failed or (not_ready and not _is_good(answers.get("ping"))):
                    yield _SCHEDULERS
                    if "schedulers" in answers and answers["schedulers"].unknown_here:
                        yield _OLD_SCHEDULERS
            case Stage.SELDOM:
                yield from super().questions(stage, answers, failed=failed)
                yield _MODEL
                if "model" in answers and answers["model"].unknown_here:
                    yield _OLD_MODEL

    def read(self, answers: Answers) -> Reading:
        series = self.series(answers)
        info = next((answers[n] for n in ("model", "old_model") if _is_good(answers.get(n))), None)
        version = info.field("weight_version") if info else None
        loads = _loads(answers)
        turning = _turning(answers)
        return Reading(
            beats=_beats(series, loads),
            running=_either(series.sum(_RUNNING), loads, "num_running_reqs"),
            waiting=_either(
                added(*(series.sum(name) for name in _WAITING)), loads, "num_waiting_reqs"
            ),
            kv_usage=series.max(_KV_USAGE),
            generated_tokens=series.sum(_GENERATED),
            prompt_tokens=series.sum(_PROMPT),
            preemptions=series.sum(_RETRACTIONS),
            errors=_server_errors(series),
            aborts=series.sum(_ABORTS),
            models=models_of(answers),
            weight_version=None if version is None else str(version),
            unready=_is_unavailable(answers.get("life")),
            paused=_paused(answers, turning),
            updating=_updating(series),
            turning=turning,
        )

    def completion(self, model: str | None, rank: str = "") -> Question | None:
        """By its own endpoint and a token's number: it may run without a tokenizer."""
        probe = self._config.deep_probe
        if probe.path is not None:
            return super().completion(model or self._config.model or "default", rank)
        sampling = {"max_new_tokens": 1, "temperature": 0}
        return self.post(
            "/generate", {"input_ids": [_FIRST_TOKEN], "sampling_params": sampling}, rank
        )

    def has_token(self, body: Any) -> bool:
        return isinstance(body, dict) and any(body.get(key) for key in ("meta_info", "choices"))


def _is_unavailable(answer: Answer | None) -> bool:
    return bool(answer and answer.answered and answer.status == HTTPStatus.SERVICE_UNAVAILABLE)


def _is_good(answer: Answer | None) -> bool:
    return bool(answer and answer.good)


def _paused(answers: Answers, turning: bool | None) -> bool | None:
    """Whether it says that it takes no new requests, and that this is meant.

    /ping is 200 in a pause, until somebody's /health has timed out in it. Then, or where /ping
    needs a key, only the schedulers tell a pause from a hang.
    """
    if not _is_unavailable(answers.get("life")):
        return False if _is_good(answers.get("life")) else None
    ping = answers.get("ping")
    if _is_good(ping):
        return True
    if turning is None and ping and ping.unauthorized:
        return True  # it said itself that it is not ready, and there is nothing more to ask
    return turning


def _turning(answers: Answers) -> bool | None:
    asked = [
        answers[name]
        for name in ("schedulers", "old_schedulers")
        if name in answers and not answers[name].unknown_here
    ]
    if not asked or asked[-1].unauthorized:
        return None
    return asked[-1].good


def _loads(answers: Answers) -> list[dict[str, Any]]:
    answer = answers.get("loads")
    found = answer.field("loads") if answer and answer.good else None
    if not isinstance(found, list):
        return []
    return [load for load in found[:_MOST_RANKS] if isinstance(load, dict)]


def _either(value: float | None, loads: list[dict[str, Any]], key: str) -> float | None:
    """`value` of the metrics, which are off by default, else what the schedulers said."""
    said = [load[key] for load in loads if isinstance(load.get(key), int | float)]
    return value if value is not None or not said else float(sum(said))


def _beats(series: Series, loads: list[dict[str, Any]]) -> dict[str, Beat]:
    """When each scheduler last said how it is, and what the server as a whole has done."""
    beats = {
        str(load.get("dp_rank", 0)): Beat(float(load["timestamp"]), owed=True, ticks=True)
        for load in loads
        if isinstance(load.get("timestamp"), int | float)
    }
    done = added(*(series.sum(name) for name in (_GENERATED, _PROMPT, _FORWARD)))
    if done is not None:
        in_flight = added(*(series.sum(name) for name in (_RUNNING, *_WAITING))) or 0
        beats[""] = Beat(done, owed=in_flight > 0)
    return beats


def _updating(series: Series) -> bool | None:
    active = series.of(_ACTIVE)
    if not active:
        return None
    return any(
        one.value > 0 and one.labels.get("endpoint", "").startswith(_UPDATES) for one in active
    )


def _server_errors(series: Series) -> float | None:
    answered = [
        one
        for one in series.of(_RESPONSES)
        if not one.labels.get("endpoint", "").startswith(_FLAGS)
    ]
    failed = (one.value for one in answered if one.labels.get("status_code", "").startswith("5"))
    return sum(failed) if answered else None
