"""TGI (text-generation-inference): its /health checks the device, and generates after a failure.

Read from its last state, v3.3.7; it is in maintenance mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainwarden_exporter.inference.engines.base import METRICS, Engine, Stage, added
from trainwarden_exporter.inference.questions import Answers, Question
from trainwarden_exporter.inference.reading import Beat, Reading

_RUNNING = "tgi_batch_current_size"
_WAITING = "tgi_queue_size"
_CALLS = "tgi_batch_inference_count"
_SUCCESSES = "tgi_request_success"
_FAILURES = "tgi_request_failure"
_GENERATED = "tgi_request_generated_tokens_sum"
_PROMPT = "tgi_request_input_length_sum"

_INFO = Question("info", "/info")


class Tgi(Engine):
    name = "tgi"
    wanted = (_RUNNING, _WAITING, _CALLS, _SUCCESSES, _FAILURES, _GENERATED, _PROMPT)

    @property
    def liveness(self) -> Question:
        return Question("life", "/health", patience=None)

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        if stage is Stage.PASSIVE:
            yield METRICS
        if stage is Stage.SELDOM:
            yield _INFO

    def read(self, answers: Answers) -> Reading:
        series = self.series(answers)
        running, waiting = series.sum(_RUNNING), series.sum(_WAITING)
        done = added(*(series.sum(name) for name in (_CALLS, _SUCCESSES, _FAILURES)))
        info = answers.get("info")
        model = info.field("model_id") if info and info.good else None
        return Reading(
            beats={} if done is None else {"": Beat(done, owed=(added(running, waiting) or 0) > 0)},
            running=running,
            waiting=waiting,
            generated_tokens=series.sum(_GENERATED),
            prompt_tokens=series.sum(_PROMPT),
            errors=series.sum(_FAILURES),
            models=None if model is None else (str(model),),
        )

    def completion(self, model: str | None, rank: str = "") -> Question | None:
        probe = self._config.deep_probe
        if probe.path is not None:
            return super().completion(model or "tgi", rank)
        wish = {"max_new_tokens": 1, "do_sample": False}
        return self.post("/generate", {"inputs": probe.prompt, "parameters": wish})

    def has_token(self, body: Any) -> bool:
        return isinstance(body, dict) and ("generated_text" in body or bool(body.get("choices")))
