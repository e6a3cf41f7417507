"""llama.cpp's server: /health is constant once it has loaded, /metrics takes its turn.

Read from 11434; /metrics needs --metrics (501 without), and all but /health need the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from trainwarden_exporter.inference.engines.base import (
    METRICS,
    MODELS,
    Engine,
    Stage,
    added,
    models_of,
)
from trainwarden_exporter.inference.questions import SOON, Answer, Answers, Question
from trainwarden_exporter.inference.reading import Beat, Life, Reading

_RUNNING = "llamacpp:requests_processing"
_WAITING = "llamacpp:requests_deferred"
_GENERATED = "llamacpp:tokens_predicted_total"
_PROMPT = "llamacpp:prompt_tokens_total"
_DECODES = "llamacpp:n_decode_total"
# Gone since; a share of the cache is no longer to be had.
_KV_USAGE = "llamacpp:kv_cache_usage_ratio"


class LlamaCpp(Engine):
    name = "llama_cpp"
    wanted = (_RUNNING, _WAITING, _GENERATED, _PROMPT, _DECODES, _KV_USAGE)

    @property
    def liveness(self) -> Question:
        return Question("life", "/health", patience=None)

    def life(self, answer: Answer) -> Life:
        loads = answer.answered and answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        return Life.LOADING if loads and b"oading" in answer.body else super().life(answer)

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        if stage is Stage.PASSIVE:
            yield replace(METRICS, patience=SOON)  # it hangs where the loop does
        if stage is Stage.SELDOM:
            yield MODELS

    def read(self, answers: Answers) -> Reading:
        series = self.series(answers)
        running, waiting = series.sum(_RUNNING), series.sum(_WAITING)
        done = added(*(series.sum(name) for name in (_DECODES, _GENERATED, _PROMPT)))
        page = answers.get("metrics")
        return Reading(
            beats={} if done is None else {"": Beat(done, owed=(added(running, waiting) or 0) > 0)},
            running=running,
            waiting=waiting,
            kv_usage=series.max(_KV_USAGE),
            generated_tokens=series.sum(_GENERATED),
            prompt_tokens=series.sum(_PROMPT),
            models=models_of(answers),
            turning=False if page and not page.answered else None,
        )

    def completion(self, model: str | None, rank: str = "") -> Question | None:
        probe = self._config.deep_probe
        if probe.path is not None:
            return super().completion(model or "default", rank)
        wish = {"prompt": probe.prompt, "n_predict": 1, "temperature": 0, "cache_prompt": False}
        return self.post("/completion", wish)

    def has_token(self, body: Any) -> bool:
        return isinstance(body, dict) and ("content" in body or bool(body.get("choices")))
