"""vLLM: its /health is a flag, and its gauges stand still when the engine does.

Read from 0.33.0 and earlier releases, and seen on 0.32.0: /health says 200 while a worker is
frozen; gauges change with the engine's output alone, so that a hang from idle looks idle; only a
completion tells then.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from trainwarden_exporter.inference.engines.base import Engine, Stage, added, models_of
from trainwarden_exporter.inference.questions import Answer, Answers, Question
from trainwarden_exporter.inference.reading import Beat, Life, Reading
from trainwarden_exporter.inference.series import Series

_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
# Renamed in 0.9.2, gone under the old name in 0.12.
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

_PAUSED = Question("paused", "/is_paused")
_ASLEEP = Question("asleep", "/is_sleeping")
_LOAD = Question("load", "/load")
_WEIGHTS = Question("weights", "/weight_info")


class Vllm(Engine):
    name = "vllm"
    wanted = (
        *(_RUNNING, _WAITING, *_KV_USAGE, _PROMPT, _GENERATED, _FINISHED, _ITERATIONS),
        *(_PREEMPTIONS, _REJECTIONS, _SLEEP, _SLEEP_CHANGES, _UPDATES),
    )

    @property
    def liveness(self) -> Question:
        return Question("life", "/health", patience=None)

    def life(self, answer: Answer) -> Life:
        # 503 since 0.11, 500 before; its body is empty, unlike that of a proxy, or of vLLM itself
        # while it scales its experts.
        if answer.answered and answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return Life.BAD if answer.body.strip() else Life.DEAD
        if answer.answered and answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return Life.DEAD
        return super().life(answer)

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        yield from super().questions(stage, answers, failed=failed)
        if stage is Stage.DOUBT:
            # Both are for VLLM_SERVER_DEV_MODE=1, without which nobody can pause it over HTTP.
            yield _PAUSED
            if "paused" in answers and answers["paused"].unknown_here:
                yield _ASLEEP  # before 0.12
            yield _LOAD
        if stage is Stage.SELDOM:
            yield _WEIGHTS

    def read(self, answers: Answers) -> Reading:
        series = self.series(answers)
        weights = answers.get("weights")
        version = weights.field("weight_version") if weights and weights.good else None
        models = models_of(answers)
        if models is None:
            named = series.sums_by("model_name", _RUNNING)
            models = tuple(name for name in named if name) or None
        return Reading(
            beats=_beats(series, answers),
            running=series.sum(_RUNNING),
            waiting=series.sum(_WAITING),
            kv_usage=series.max(*_KV_USAGE),
            generated_tokens=series.sum(_GENERATED),
            prompt_tokens=series.sum(_PROMPT),
            preemptions=series.sum(_PREEMPTIONS),
            errors=series.sum(_FINISHED, finished_reason="error"),
            aborts=series.sum(_FINISHED, finished_reason="abort"),
            rejections=series.sum(_REJECTIONS),
            models=models,
            weight_version=None if version is None else str(version),
            paused=_flag(answers, "paused", "is_paused"),
            asleep=_asleep(series, answers),
            updating=_under_way(series.sum(_UPDATES)),
            turning=_turning(answers),
        )


def _beats(series: Series, answers: Answers) -> dict[str, Beat]:
    """One for each engine; each has a loop of its own, and may hang alone."""
    done: dict[str, float] = {}
    for name in (_ITERATIONS, _GENERATED, _PROMPT, _FINISHED):
        for engine, count in series.sums_by("engine", name).items():
            done[engine] = done.get(engine, 0.0) + count
    in_flight = series.sums_by("engine", _RUNNING)
    for engine, count in series.sums_by("engine", _WAITING).items():
        in_flight[engine] = in_flight.get(engine, 0.0) + count
    # Always 0 without --enable-server-load-tracking. Which engine it concerns it does not say.
    load = answers.get("load")
    held = load.field("server_load") if load and load.good else None
    waits = isinstance(held, int | float) and held > 0
    return {
        engine: Beat(count, owed=in_flight.get(engine, 0) > 0 or (waits and len(done) == 1))
        for engine, count in done.items()
    }


def _asleep(series: Series, answers: Answers) -> bool | None:
    levels = added(
        series.sum(_SLEEP, sleep_state="weights_offloaded"),
        series.sum(_SLEEP, sleep_state="discard_all"),
    )
    changes = _under_way(series.sum(_SLEEP_CHANGES))
    if levels is not None:
        return levels > 0 or bool(changes)
    return changes or _flag(answers, "asleep", "is_sleeping")


def _under_way(count: float | None) -> bool | None:
    return None if count is None else count > 0


def _flag(answers: Answers, name: str, key: str) -> bool | None:
    answer = answers.get(name)
    value = answer.field(key) if answer and answer.good else None
    return value if isinstance(value, bool) else None


def _turning(answers: Answers) -> bool | None:
    """False where the engine's loop did not take up a question; that it does says little."""
    asked = [answers[name] for name in ("paused", "asleep") if name in answers]
    return False if any(not answer.answered for answer in asked) else None
