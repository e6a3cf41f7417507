"""Builds the view models of runs from the samples of all collectors."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trainwarden_exporter.logs.counters import ErrorLine, UnreadStep
from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.progress.run_time_history import RunDay
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ReadProgress, RunWatch
from trainwarden_exporter.progress.trainings import counted_beside
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.runtime.responsibility import AT_PROMPT, suspended
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.host import failures
from trainwarden_exporter.status_page.part_views import (
    BRAKE,
    BrakeView,
    CheckpointView,
    ContainerView,
    HeartbeatView,
    RolloutView,
    ServerView,
)
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.series import Labels, Series
from trainwarden_exporter.step_dirs.names import counts_epochs, number_unit


def build_run_views(outcomes: Iterable[Outcome], *, now: float) -> tuple[RunView, ...]:
    """Returns the runs in `outcomes` in configuration order; `now` is a Unix time."""
    outcomes = tuple(outcomes)
    series = Series(outcomes, now)
    artifacts = [artifact for outcome in outcomes for artifact in outcome.artifacts]
    frameworks = {
        artifact.run: artifact.framework
        for artifact in artifacts
        if isinstance(artifact, ProgressSpec)
    }
    trainers = {
        artifact.run: [WorkerKey(artifact.run, worker) for worker in artifact.trainers]
        for artifact in artifacts
        if isinstance(artifact, ProgressSpec)
    }
    watches = {one.run: one for one in artifacts if isinstance(one, RunWatch)}
    unread = {one.run: one.line for one in artifacts if isinstance(one, UnreadStep)}
    ended = {key[:2] for key, n in series.all("worker_finished").items() if n == 1}
    finished = {
        # after its start, the exporter knows the end of a worker before that of its run
        run: n == 1 or bool(trainers.get(run) and ended.issuperset(trainers[run]))
        for (run,), n in series.all("training_finished").items()
    }
    days = {one.run: one.read for one in artifacts if isinstance(one, RunDay)}
    counted = {one.run: _counted(one.read()) for one in artifacts if isinstance(one, ReadProgress)}
    failed = failures(outcomes)
    announced = [artifact for artifact in artifacts if isinstance(artifact, Announcement)]
    error_lines = [artifact for artifact in artifacts if isinstance(artifact, ErrorLine)]
    error_lines.sort(key=lambda line: -line.timestamp)
    return tuple(
        RunView(
            name=run,
            framework=frameworks.get(run, ""),
            phase=series.word("training_phase", run),
            step=series.of("training_step", run),
            total=series.of("training_total_steps", run),
            step_seconds=series.of("training_step_duration_seconds", run),
            usual_seconds=series.of("training_step_duration_median_seconds", run),
            step_age=series.age("training_last_step_timestamp_seconds", run),
            silence=series.age("training_progress_timestamp_seconds", run),
            stall_limit=series.of("training_stall_pause_limit_seconds", run),
            restart_limit=_restart_limit(series, run),
            counted=counted.get(run, ""),
            waits=_waits(series, run),
            stuck=series.word("stack_movement", run) == "stuck",
            halted=_halted(series, run),
            resumes=series.of("training_resumes_total", run) or 0,
            resume_step=series.of("training_resume_step", run),
            last_step_made=series.of("training_last_step_made", run) == 1,
            finished=is_finished,
            outlived=_outlived(series, run, announced) if is_finished else "",
            trainer_processes=series.of("run_trainer_processes", run),
            trainer_age=series.age("run_trainer_start_timestamp_seconds", run),
            watched=max(0.0, now - watches[run].since()) if run in watches else None,
            report_seconds=watches[run].report_seconds() if run in watches else None,
            unread_step=unread.get(run, ""),
            prints_loss=_prints_loss(series, run),
            failure=next((failed[key] for key in trainers.get(run, ()) if key in failed), ""),
            checkpoints=series.each("checkpoint_seen_timestamp_seconds", run, _checkpoint),
            rollouts=series.each("rollout_seen_timestamp_seconds", run, _rollout),
            servers=series.each("inference_up", run, _server),
            containers=series.each("container_recent_starts", run, _container),
            heartbeats=series.each("heartbeat_beats_total", run, _heartbeat),
            brakes=_brakes(series, run),
            error_lines=tuple(line for line in error_lines if line.run == run),
            day=days[run]() if run in days else (),
            finite_until=_finite_until(series, run),
            sound_checkpoint=_sound_checkpoint(series, run),
            attempts=next(
                (key[-1] for key in series.all("run_attempts_loop_info") if key[0] == run), ""
            ),
        )
        for run, is_finished in finished.items()
    )


def build_heartbeat_views(
    outcomes: Iterable[Outcome], *, now: float, runs: Iterable[str]
) -> tuple[HeartbeatView, ...]:
    """Returns the heartbeats that belong to none of `runs`."""
    series, known = Series(outcomes, now), frozenset(runs)
    return tuple(
        _heartbeat(series, key)
        for key in series.all("heartbeat_beats_total")
        if key[0] not in known
    )


def _counted(state: RunProgress) -> str:
    count = counted_beside(state)
    return "" if count is None or not count.drawn else f"{count.drawn[-1]:,} of {count.total:,}"


def _restart_limit(series: Series, run: str) -> float | None:
    """Returns the restart limit; None while a start of the exporter leaves it undecided."""
    undecided = series.word("stack_movement", run) == "undecided"
    return None if undecided else series.of("training_stall_restart_limit_seconds", run)


def _waits(series: Series, run: str) -> str:
    shown = series.word("stack_movement", run) in ("moving", "stuck")
    return series.word("stack_chain_info", run) if shown or _halted(series, run) else ""


def _halted(series: Series, run: str) -> str:
    def some(name: str, state: str) -> bool:
        return any(n for key, n in series.all(name).items() if (key[0], key[-1]) == (run, state))

    if some("stack_processes", "prompt"):
        return AT_PROMPT
    stopped = some("worker_process_states", "stopped")
    return suspended(series.word("stack_chain_info", run)) if stopped else ""


def _outlived(series: Series, run: str, announced: Iterable[Announcement]) -> str:
    shown = []
    for one in announced:
        key = run, one.worker, one.role
        if one.run == run and not one.has_ended and series.of("worker_processes", *key):
            age = format_duration(round(series.age("worker_start_timestamp_seconds", *key) or 0))
            shown.append(f"{one.worker} ({one.role}, for {age})")
    runs, them = ("still runs", "it") if len(shown) == 1 else ("still run", "them")
    return f"{' and '.join(shown)} {runs}: `trainwarden stop {run}` ends {them}" if shown else ""


def _checkpoint(series: Series, key: Labels) -> CheckpointView:
    trainer_gone = series.of("run_trainer_processes", key[0]) == 0
    name = series.word("checkpoint_proved_info", *key)
    name = series.word("checkpoint_incomplete_info", *key) or name
    left = [room for k, room in series.all("disk_checkpoints_left").items() if k[:2] == key]
    return CheckpointView(
        name=key[1],
        step=series.of("checkpoint_step", *key),
        unit=number_unit(name),
        age=series.age("checkpoint_timestamp_seconds", *key),
        trainer_age=series.age("run_trainer_start_timestamp_seconds", key[0]),
        interval=series.of("checkpoint_interval_seconds", *key),
        # what a process that was killed has left is not written any more
        saving=series.of("checkpoint_saving", *key) == 1 and not trainer_gone,
        settling=series.of("checkpoint_settling", *key) == 1,
        trainer_gone=trainer_gone,
        incomplete_step=series.of("checkpoint_incomplete_step", *key),
        left=min(left, default=None),
        finished=series.of("training_finished", key[0]) == 1
        or series.of("training_last_step_made", key[0]) == 1,
        others=series.word("checkpoint_others_info", *key),
        missing_folder=series.word("checkpoint_missing_folder_info", *key),
        resume_problem=series.word("checkpoint_resume_problem_info", *key),
        finite_until=_finite_until(series, key[0]),
    )


def _prints_loss(series: Series, run: str) -> bool:
    """Whether the log of a run shows a loss that is younger than its trainer."""
    started = series.of("run_trainer_start_timestamp_seconds", run) or 0.0
    times = series.all("log_value_timestamp_seconds").items()
    return any(of == run and "loss" in name and at > started for (of, _, name), at in times)


def _finite_until(series: Series, run: str) -> float | None:
    """Returns the last step with a finite loss, if the last loss is not finite."""
    found = series.all("log_value_finite_until_step").items()
    steps = (step for (of, _, name), step in found if of == run and "loss" in name)
    return min(steps, default=None)


def _sound_checkpoint(series: Series, run: str) -> str | None:
    """Returns the path of a newest proved checkpoint that is from before a loss of NaN, or "".

    Also "" as long as a newer one from before it is not read yet. None if none is complete.
    """
    if (until := _finite_until(series, run)) is None:
        return ""
    looked, newest = (
        any(key[0] == run for key in series.all(f"checkpoint_{name}"))
        for name in ("seen_timestamp_seconds", "timestamp_seconds")
    )
    if looked and not newest:
        return None
    proved = series.all("checkpoint_proved_step").items()
    unread = series.all("checkpoint_unproved_step")
    kinds = [
        key for key, step in proved if key[0] == run and step <= until < unread.get(key, math.inf)
    ]
    paths = (series.word("checkpoint_proved_info", *key) for key in kinds)
    return next((path for path in paths if not counts_epochs(path)), "")


def _rollout(series: Series, key: Labels) -> RolloutView:
    return RolloutView(
        name=key[1],
        step=series.of("rollout_step", *key),
        age=series.age("rollout_timestamp_seconds", *key),
        lag=series.of("rollout_lag_steps", *key),
        lag_limit=series.of("rollout_lag_limit_steps", *key),
    )


def _server(series: Series, key: Labels) -> ServerView:
    return ServerView(
        name=key[1],
        engine=key[2],
        worker=next((k[-2] for k in series.all("inference_info") if k[: len(key)] == key), ""),
        up=series.of("inference_up", *key) == 1,
        reason=series.word("inference_reason", *key),
        since=series.age("inference_state_timestamp_seconds", *key),
        running=series.of("inference_running_requests", *key),
        waiting=series.of("inference_waiting_requests", *key),
        cache=series.of("inference_kv_cache_usage_ratio", *key),
        version=series.of("inference_weight_version", *key),
    )


def _container(series: Series, key: Labels) -> ContainerView:
    return ContainerView(
        name=key[1],
        state=series.word("container_state", *key),
        health=series.word("container_health", *key),
        recent_starts=series.of("container_recent_starts", *key),
        exit_code=series.of("container_last_exit_code", *key),
        last_line=series.word("container_last_line", *key),
    )


def _brakes(series: Series, run: str) -> tuple[BrakeView, ...]:
    """Returns the brakes of `run`; a streak of a process before the present one does not count."""
    brakes = series.each("log_match_streak", run, _brake)
    return tuple(one for one in brakes if BRAKE in one.pattern and not _restarted(series, run, one))


def _brake(series: Series, key: Labels) -> BrakeView:
    return BrakeView(
        pattern=key[2],
        log=key[1],
        streak=series.of("log_match_streak", *key) or 0,
        age=series.age("log_last_match_timestamp_seconds", *key),
    )


def _restarted(series: Series, run: str, brake: BrakeView) -> bool:
    """Whether the worker that writes the log started after the last activation."""
    workers = {key[3] for key in series.all("log_info") if key[:2] == (run, brake.log)}
    ages = (
        series.age("worker_start_timestamp_seconds", *key)
        for key in series.all("worker_start_timestamp_seconds")
        if key[0] == run and key[1] in workers
    )
    return any(age is not None and age < (brake.age or 0) for age in ages)


def _heartbeat(series: Series, key: Labels) -> HeartbeatView:
    age = series.age("heartbeat_timestamp_seconds", *key)
    awaited = series.age("heartbeat_awaited_since_timestamp_seconds", *key)
    return HeartbeatView(
        name=key[1],
        age=age,
        interval=series.of("heartbeat_interval_seconds", *key),
        silence=min((one for one in (age, awaited) if one is not None), default=None),
        step=series.of("heartbeat_step", *key),
    )
