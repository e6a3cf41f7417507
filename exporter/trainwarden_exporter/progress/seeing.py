"""What was just collected of each run, put together from the series of all collectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from trainwarden_exporter.core import Outcome
from trainwarden_exporter.logs.tally import TroubleLine
from trainwarden_exporter.progress.sightings import (
    CheckpointSighting,
    ContainerSighting,
    HeartbeatSighting,
    RolloutSighting,
    RunSighting,
    ServerSighting,
)
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.sightings import Values, sample_values

T = TypeVar("T")


def see_runs(outcomes: Iterable[Outcome], *, now: float) -> tuple[RunSighting, ...]:
    """The runs in `outcomes`, in the order of the configuration; `now` is a Unix time."""
    outcomes = tuple(outcomes)
    series = _Series(sample_values(outcomes), now)
    notes = [note for outcome in outcomes for note in outcome.notes]
    frameworks = {note.run: note.framework for note in notes if isinstance(note, ProgressSpec)}
    troubles = [note for note in notes if isinstance(note, TroubleLine)]
    troubles.sort(key=lambda line: -line.timestamp)
    return tuple(
        RunSighting(
            name=run,
            framework=frameworks.get(run, ""),
            phase=series.word("training_phase", run),
            phase_age=series.age("training_phase_timestamp_seconds", run),
            step=series.of("training_step", run),
            total=series.of("training_total_steps", run),
            step_seconds=series.of("training_step_duration_seconds", run),
            usual_seconds=series.of("training_step_duration_median_seconds", run),
            step_age=series.age("training_last_step_timestamp_seconds", run),
            silence=series.age("training_progress_timestamp_seconds", run),
            stall_limit=series.of("training_stall_pause_limit_seconds", run),
            resumes=series.of("training_resumes_total", run) or 0,
            resume_step=series.of("training_resume_step", run),
            finished=finished == 1,
            checkpoints=series.each("checkpoint_seen_timestamp_seconds", run, _checkpoint),
            rollouts=series.each("rollout_seen_timestamp_seconds", run, _rollout),
            servers=series.each("inference_up", run, _server),
            containers=series.each("container_recent_starts", run, _container),
            heartbeats=series.each("heartbeat_beats_total", run, _heartbeat),
            troubles=tuple(line for line in troubles if line.run == run),
        )
        for (run,), finished in series.all("training_finished").items()
    )


def see_heartbeats(
    outcomes: Iterable[Outcome], *, now: float, runs: Iterable[str]
) -> tuple[HeartbeatSighting, ...]:
    """The heartbeats that belong to none of `runs`."""
    series, known = _Series(sample_values(outcomes), now), frozenset(runs)
    return tuple(
        _heartbeat(series, key)
        for key in series.all("heartbeat_beats_total")
        if key[0] not in known
    )


class _Series:
    """The samples of one scrape, by names without the prefix."""

    def __init__(self, values: Values, now: float) -> None:
        self._values = values
        self._now = now

    def all(self, name: str) -> Mapping[tuple[str, ...], float]:
        return self._values.get(f"trainwarden_{name}", {})

    def of(self, name: str, *key: str) -> float | None:
        return self.all(name).get(key)

    def age(self, name: str, *key: str) -> float | None:
        """Seconds since the moment that `name` is."""
        moment = self.of(name, *key)
        return None if moment is None else max(0.0, self._now - moment)

    def word(self, name: str, *key: str) -> str:
        """The last label of the series of `name` that begins with `key` and is 1."""
        said = (k[-1] for k, value in self.all(name).items() if k[:-1] == key and value == 1)
        return next(said, "")

    def each(
        self, name: str, run: str, see: Callable[[_Series, tuple[str, ...]], T]
    ) -> tuple[T, ...]:
        """What `see` makes of each series of `name` that is of `run`."""
        return tuple(see(self, key) for key in self.all(name) if key[0] == run)


def _checkpoint(series: _Series, key: tuple[str, ...]) -> CheckpointSighting:
    left = [room for k, room in series.all("disk_checkpoints_left").items() if k[:2] == key]
    return CheckpointSighting(
        name=key[1],
        step=series.of("checkpoint_step", *key),
        age=series.age("checkpoint_timestamp_seconds", *key),
        interval=series.of("checkpoint_interval_seconds", *key),
        saving=series.of("checkpoint_saving", *key) == 1,
        incomplete_step=series.of("checkpoint_incomplete_step", *key),
        left=min(left, default=None),
    )


def _rollout(series: _Series, key: tuple[str, ...]) -> RolloutSighting:
    return RolloutSighting(
        name=key[1],
        step=series.of("rollout_step", *key),
        age=series.age("rollout_timestamp_seconds", *key),
        lag=series.of("rollout_lag_steps", *key),
        lag_limit=series.of("rollout_lag_limit_steps", *key),
    )


def _server(series: _Series, key: tuple[str, ...]) -> ServerSighting:
    return ServerSighting(
        name=key[1],
        engine=key[2],
        up=series.of("inference_up", *key) == 1,
        reason=series.word("inference_reason", *key),
        since=series.age("inference_state_timestamp_seconds", *key),
        running=series.of("inference_running_requests", *key),
        waiting=series.of("inference_waiting_requests", *key),
        cache=series.of("inference_kv_cache_usage_ratio", *key),
        version=series.of("inference_weight_version", *key),
    )


def _container(series: _Series, key: tuple[str, ...]) -> ContainerSighting:
    return ContainerSighting(
        name=key[1],
        state=series.word("container_state", *key),
        health=series.word("container_health", *key),
        recent_starts=series.of("container_recent_starts", *key),
        exit_code=series.of("container_last_exit_code", *key),
        last_line=series.word("container_last_line", *key),
    )


def _heartbeat(series: _Series, key: tuple[str, ...]) -> HeartbeatSighting:
    age = series.age("heartbeat_timestamp_seconds", *key)
    awaited = series.age("heartbeat_awaited_timestamp_seconds", *key)
    return HeartbeatSighting(
        name=key[1],
        age=age,
        interval=series.of("heartbeat_interval_seconds", *key),
        silence=min((one for one in (age, awaited) if one is not None), default=None),
        step=series.of("heartbeat_step", *key),
    )
