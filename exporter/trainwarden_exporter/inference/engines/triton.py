"""Triton: says with 400 that it is not live or not ready, and keeps its metrics at another port.

Read from server e1db8a6. What a completion looks like depends on the model, so none is asked for
unless a path in OpenAI's form is configured.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from trainwarden_exporter.inference.engines.base import METRICS, Engine, Stage, added
from trainwarden_exporter.inference.questions import Answer, Answers, Question
from trainwarden_exporter.inference.reading import Beat, Life, Reading

METRICS_PORT = 8002

_WAITING = "nv_inference_pending_request_count"
_EXECUTIONS = "nv_inference_exec_count"
_SUCCESSES = "nv_inference_request_success"
_FAILURES = "nv_inference_request_failure"

_INDEX = Question("models", "/v2/repository/index", "POST", {})


class Triton(Engine):
    name = "triton"
    deep = False
    metrics_port = METRICS_PORT
    wanted = (_WAITING, _EXECUTIONS, _SUCCESSES, _FAILURES)

    @property
    def liveness(self) -> Question:
        return Question("life", "/v2/health/ready", patience=None)

    def life(self, answer: Answer) -> Life:
        unready = answer.answered and answer.status in (
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.SERVICE_UNAVAILABLE,
        )
        return Life.NOT_READY if unready else super().life(answer)

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        if stage is Stage.PASSIVE:
            yield METRICS
        if stage is Stage.SELDOM:
            yield _INDEX

    def read(self, answers: Answers) -> Reading:
        series = self.series(answers)
        waiting = series.sum(_WAITING)
        done = added(*(series.sum(name) for name in (_EXECUTIONS, _SUCCESSES, _FAILURES)))
        return Reading(
            beats={} if done is None else {"": Beat(done, owed=(waiting or 0) > 0)},
            waiting=waiting,
            errors=series.sum(_FAILURES),
            models=_ready_models(answers),
        )

    def completion(self, model: str | None, rank: str = "") -> Question | None:
        if self._config.deep_probe.path is None:
            return None
        return super().completion(model, rank)


def _ready_models(answers: Answers) -> tuple[str, ...] | None:
    answer = answers.get("models")
    listed = answer.json() if answer and answer.good else None
    if not isinstance(listed, list):
        return None
    entries = [entry for entry in listed if isinstance(entry, dict) and "name" in entry]
    return tuple(str(entry["name"]) for entry in entries if entry.get("state") == "READY")
