"""Parses the exporter's /metrics into the state that decisions rest on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.worker_trials import (
    STORED_STUDY,
    STORED_TRIAL,
    TRIAL_PREFIX,
    UNSTORED_STUDY,
)
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.model import (
    DiskState,
    EmergencyBrakeState,
    ExporterState,
    RunState,
    ServerState,
    WorkerState,
)

PREFIX = "trainwarden_"

EMERGENCY_BRAKE_PATTERN = "brake"
"""Part of the name of each log pattern that matches the lines of a worker's emergency brake."""

_Sample = tuple[Mapping[str, str], float]


class _Page:
    """The samples of a page, by metric. Parsed when they are read: the most are never read."""

    def __init__(self, body: bytes) -> None:
        self._lines: dict[str, list[str]] = {}
        self._samples: dict[str, list[_Sample]] = {}
        self._groups: dict[tuple[str, ...], dict[tuple[str, ...], list[_Sample]]] = {}
        try:
            # Not splitlines(): a value of a label may hold the other ends of lines.
            for line in body.decode().split("\n"):
                if line.startswith(PREFIX):
                    name = re.split("[{ ]", line, maxsplit=1)[0].removeprefix(PREFIX)
                    self._lines.setdefault(name, []).append(line)
        except UnicodeDecodeError as error:
            raise ObservationError(f"the exporter's page cannot be read: {error}") from error

    def _samples_of(self, name: str) -> list[_Sample]:
        if name not in self._samples:
            lines = "\n".join(self._lines.get(name, ()))
            try:
                self._samples[name] = [
                    (sample.labels, sample.value)
                    for family in text_string_to_metric_families(lines)
                    for sample in family.samples
                ]
            except Exception as error:  # the parser raises various errors on malformed input
                message = f"the exporter's page cannot be read: {error}"
                raise ObservationError(message) from error
        return self._samples[name]

    def all(self, name: str, **labels: str) -> Sequence[_Sample]:
        """Returns the samples of a metric that have these labels."""
        # Grouped once for each set of labels: there may be hundreds of servers.
        groups = self._groups.get((name, *labels))
        if groups is None:
            groups = self._groups[name, *labels] = {}
            for sample in self._samples_of(name):
                values = tuple(sample[0].get(label, "") for label in labels)
                groups.setdefault(values, []).append(sample)
        return groups.get(tuple(labels.values()), ())

    def maybe(self, name: str, **labels: str) -> float | None:
        return next((value for _, value in self.all(name, **labels)), None)

    def reader(self, prefix: str, **labels: str) -> Callable[[str], float | None]:
        """Returns a function that reads the metric of a name after `prefix`, with these labels."""
        return lambda name: self.maybe(f"{prefix}_{name}", **labels)

    def active_label(self, name: str, label: str, **labels: str) -> str:
        """Returns the value of `label` in the sample that is 1, where all others are 0."""
        return next((own.get(label, "") for own, value in self.all(name, **labels) if value), "")

    def values(self, label: str, *names: str) -> list[str]:
        """Returns all values of `label` in these metrics, in the order of the page."""
        found = (own.get(label, "") for name in names for own, _ in self.all(name))
        return list(dict.fromkeys(found))

    def workers(self, name: str) -> list[WorkerKey]:
        """Returns all workers in this metric, in the order of the page."""
        found = (WorkerKey(own.get("run", ""), own.get("worker", "")) for own, _ in self.all(name))
        return list(dict.fromkeys(found))


def parse_exporter_page(body: bytes) -> ExporterState:
    """Returns the state that an exporter's page shows.

    Raises ObservationError if the page cannot be parsed, or if the host or workers collector has
    failed: an incomplete observation must not lead to an action. The metrics of other failed
    collectors are left out.
    """
    page = _Page(body)
    for collector in ("host", "workers"):
        if page.maybe("collector_success", collector=collector) != 1:
            raise ObservationError(f"the exporter's {collector} collector does not report success")

    def memory(name: str) -> float:
        if (value := page.maybe(f"memory_{name}_bytes")) is None:
            raise ObservationError(f"the exporter shows no memory {name}")
        return value

    successes = [value for _, value in page.all("collector_success")]
    saves_fail = page.maybe("collector_success", collector="checkpoints") == 0
    return ExporterState(
        workers={key: _worker(key, page) for key in page.workers("worker_processes")},
        memory_available_bytes=memory("effective_available"),
        memory_floor_bytes=memory("available_floor"),
        gpu_orphans=_orphans(page),
        servers={run: tuple(_servers(page, run)) for run in page.values("run", "inference_info")},
        runs={run: _run(page, run) for run in page.values("run", *_OF_A_RUN)},
        disks=tuple(_disk(page, path) for path in page.values("path", *_OF_A_DISK)),
        oom_killed_at=_oom_killed_at(page),
        booted_at=page.maybe("host_boot_timestamp_seconds"),
        collectors_failing=successes.count(0) / len(successes),
        saves_unknown="the exporter's checkpoints collector fails" if saves_fail else "",
        workers_hash=page.maybe("config_workers_hash"),
        run_hashes={
            own.get("run", ""): value for own, value in page.all("config_run_workers_hash")
        },
        emergency_brakes={
            key: brake
            for key in page.workers("log_info")
            if key.worker and (brake := _emergency_brake(page, key)) is not None
        },
        ended_runs=frozenset(
            own.get("run", "") for own, value in page.all("training_finished") if value
        ),
        last_lines={
            (labels.get("run", ""), labels.get("log", ""), labels.get("pattern", "")): at
            for labels, at in page.all("log_last_match_timestamp_seconds")
        },
        memory_stalled={
            (labels.get("scope", ""), labels.get("kind", "")): value
            for labels, value in page.all("memory_pressure_stalled_seconds_total")
        },
    )


def _oom_killed_at(page: _Page) -> float | None:
    if not page.all("memory_oom_kills_total"):
        return None
    seen = page.all("memory_last_oom_kill_timestamp_seconds")
    return max((at for _, at in seen), default=0.0)


def _orphans(page: _Page) -> float | None:
    if page.maybe("collector_success", collector="gpu") != 1:
        return None
    found = [value for _, value in page.all("gpu_orphan_holders")]
    return sum(found) if found else None


def _worker(key: WorkerKey, page: _Page) -> WorkerState:
    maybe = page.reader("worker", run=key.run, worker=key.worker)

    def needed(name: str) -> float:
        if (value := maybe(name)) is None:
            raise ObservationError(f"the exporter shows no {name} of worker {key.worker}")
        return value

    return WorkerState(
        processes=needed("processes"),
        expected=needed("expected_processes"),
        memory_bytes=needed("memory_bytes"),
        finished=bool(maybe("finished")),
        started_at=maybe("start_timestamp_seconds"),
        memory_limit_bytes=maybe("memory_limit_bytes"),
        age_limit_seconds=maybe("age_limit_seconds"),
        trials=maybe("trials"),
        trials_limit=maybe("trials_limit"),
        last_exit_code=maybe("last_exit_code"),
        last_exit_at=maybe("last_exit_timestamp_seconds"),
        stopped=sum(
            count
            for _, count in page.all(
                "worker_process_states", run=key.run, worker=key.worker, state="stopped"
            )
        ),
        unconfirmed=sum(
            value
            for _, value in page.all(
                "worker_unconfirmed_missing_processes", run=key.run, worker=key.worker
            )
        ),
    )


def _servers(page: _Page, run: str) -> Iterator[ServerState]:
    for labels, _ in page.all("inference_info", run=run):
        which = {"run": run, "server": labels.get("server", "")}
        up = page.maybe("inference_up", **which)
        if up is None:
            continue
        answered = page.maybe("inference_deep_probe_success", **which)
        yield ServerState(
            name=which["server"],
            worker=labels.get("worker", ""),
            role=labels.get("role", ""),
            up=bool(up),
            reason=page.active_label("inference_reason", "reason", **which),
            since=page.maybe("inference_state_timestamp_seconds", **which),
            answered=None if answered is None else bool(answered),
            asked_at=page.maybe("inference_deep_probe_timestamp_seconds", **which),
            failures=page.maybe("inference_deep_probe_failures", **which) or 0.0,
            worked_at=page.maybe("inference_progress_timestamp_seconds", **which),
            start_grace=page.maybe("inference_start_grace_seconds", **which) or 0.0,
            seen_at=page.maybe("inference_seen_timestamp_seconds", **which),
            engine=labels.get("engine", ""),
        )


_OF_A_RUN = ("training_step", "training_stall_limit_seconds", "checkpoint_complete")


def _activities(page: _Page, run: str) -> set[str]:
    """Returns what its processes do, as far as their stacks are sampled."""
    samples = page.all("stack_processes", run=run)
    return {labels.get("activity", "") for labels, count in samples if count}


def _is_awake(page: _Page, run: str) -> bool:
    """Whether some of its processes sleep, and the others work, or serve and wait for requests.

    They look around in between; what sleeps for ever is stuck.
    """
    seen = _activities(page, run)
    return "sleep" in seen and seen <= {"sleep", "idle", "server", "moving"}


def _run(page: _Page, run: str) -> RunState:
    training = page.reader("training", run=run)

    def checkpoints(name: str) -> list[float]:
        return [value for _, value in page.all(f"checkpoint_{name}", run=run)]

    complete, matches = checkpoints("complete"), checkpoints("recovery_matches")
    trials = _stored_trials(page, run)
    movement = page.active_label("stack_movement", "movement", run=run)
    return RunState(
        step=training("step"),
        total_steps=training("total_steps"),
        last_step_at=training("last_step_timestamp_seconds"),
        usual_step_seconds=training("step_duration_median_seconds"),
        progress_at=training("progress_timestamp_seconds"),
        stall_limit=training("stall_limit_seconds"),
        pause_limit=training("stall_pause_limit_seconds"),
        phase=page.active_label("training_phase", "phase", run=run),
        trainer_processes=page.maybe("run_trainer_processes", run=run),
        last_step_made=bool(training("last_step_made")),
        finished=bool(training("finished")),
        unended=page.active_label("training_unended_info", "waits", run=run),
        resume_step=training("resume_step"),
        first_step=training("first_step_after_resume"),
        resume_checkpoint=training("resume_checkpoint_step"),
        step_spacing=training("step_spacing"),
        steps_repeated=training("steps_repeated_total"),
        restart_limit=training("stall_restart_limit_seconds"),
        stuck=movement == "stuck",
        moving=movement == "moving",
        awake=movement == "unknown" and _is_awake(page, run),
        undecided=movement == "undecided",
        waits=page.active_label("stack_chain_info", "chain", run=run),
        at_prompt="prompt" in _activities(page, run),
        trials=trials,
        checkpoint=max(checkpoints("step"), default=trials),
        checkpoint_at=max(checkpoints("timestamp_seconds"), default=None),
        incomplete_step=max(checkpoints("incomplete_step"), default=None),
        incomplete=page.active_label("checkpoint_incomplete_info", "name", run=run),
        proved_step=max(checkpoints("proved_step"), default=None),
        unproved_step=min(checkpoints("unproved_step"), default=None),
        proved_checkpoint=_proved_checkpoint(page, run),
        damaged_checkpoints=frozenset(
            labels.get("path", "") for labels, _ in page.all("checkpoint_damaged_info", run=run)
        ),
        resume_problem=page.active_label("checkpoint_resume_problem_info", "problem", run=run),
        checkpoints=sum(complete) if complete else None,
        checkpoints_end_unknown=sum(checkpoints("end_unknown")),
        checkpoint_bytes=max(checkpoints("size_bytes"), default=None),
        disk_full_at=_disk_full_at(page, run),
        checkpoints_seen_at=min(checkpoints("seen_timestamp_seconds"), default=None),
        saving=any(checkpoints("saving")),
        saving_since=max(checkpoints("incomplete_timestamp_seconds"), default=None),
        save_seconds=max(checkpoints("save_seconds"), default=None),
        recovery_matches=all(matches) if matches else None,
        interruption_start=page.maybe("run_interruption_start_timestamp_seconds", run=run),
        interruption_end=page.maybe("run_interruption_end_timestamp_seconds", run=run),
        interruption_steps=page.maybe("run_interruption_steps_redone", run=run),
        effective_seconds=_seconds(page, run, _EFFECTIVE),
        counted_seconds=_seconds(page, run, _COUNTED),
        paused_seconds=page.maybe("run_paused_seconds_total", run=run),
        attempts=page.active_label("run_attempts_loop_info", "ends", run=run),
        finite_until={
            (labels.get("log", ""), labels.get("name", "")): step
            for labels, step in page.all("log_value_finite_until_step", run=run)
        },
    )


def _disk_full_at(page: _Page, run: str) -> float | None:
    last = page.all("log_last_match_timestamp_seconds", run=run, pattern="disk_full")
    return max((at for _, at in last), default=None)


def _stored_trials(page: _Page, run: str) -> float | None:
    """Returns how many trials of a search have ended and are stored; None without any.

    A journal has a line for each. Of a database, the logs of the workers say that the study is in
    it, and which trials have ended.
    """
    lines: dict[str, float] = {}
    for labels, value in page.all("log_matches_total", run=run):
        pattern = labels.get("pattern", "")
        name = TRIAL_PREFIX if pattern.startswith(TRIAL_PREFIX) else pattern
        lines[name] = lines.get(name, 0.0) + value
    journaled = lines.get(STORED_TRIAL)
    if journaled or not lines.get(STORED_STUDY) or lines.get(UNSTORED_STUDY):
        return journaled or None
    return lines.get(TRIAL_PREFIX) or None


def _proved_checkpoint(page: _Page, run: str) -> str:
    """Returns the path of the newest proved checkpoint; of several kinds, the first on the page."""
    paths = {
        labels.get("checkpoint"): labels.get("path", "")
        for labels, _ in page.all("checkpoint_proved_info", run=run)
    }
    steps = {
        labels.get("checkpoint"): step
        for labels, step in page.all("checkpoint_proved_step", run=run)
    }
    newest = max(paths, key=lambda kind: steps.get(kind, -1.0), default=None)
    path = paths.get(newest, "")
    return path if path.startswith("/") else ""


_EFFECTIVE = frozenset(
    {"training", "waiting_for_rollouts", "updating_weights", "evaluating", "saving"}
)
_COUNTED = _EFFECTIVE | {"starting", "first_step", "stalled", "redoing", "down", "held"}


def _seconds(page: _Page, run: str, states: frozenset[str]) -> float | None:
    """Returns the time of a run in `states`, as the recording rules count it; None if not shown."""
    shown = page.all("run_time_seconds_total", run=run)
    spent = [value for own, value in shown if own["state"] in states]
    return sum(spent) if spent else None


_OF_A_DISK = ("disk_up", "disk_free_bytes", "disk_checkpoints_left")
"""Of the disk of a checkpoint folder that is not watched itself, only the last is shown."""


def _disk(page: _Page, path: str) -> DiskState:
    maybe = page.reader("disk", path=path)
    left: dict[str, float] = {}
    for labels, count in page.all("disk_checkpoints_left", path=path):
        run = labels.get("run", "")
        left[run] = min(count, left.get(run, count))
    return DiskState(
        path=path,
        up=maybe("up") != 0,
        size=maybe("size_bytes"),
        free=maybe("free_bytes"),
        inodes=maybe("inodes"),
        free_inodes=maybe("free_inodes"),
        read_only=bool(maybe("read_only")),
        seen_at=maybe("seen_timestamp_seconds"),
        runs=frozenset(left),
        checkpoints_left=left,
        free_floor=maybe("free_floor_bytes"),
    )


def _emergency_brake(page: _Page, key: WorkerKey) -> EmergencyBrakeState | None:
    """Returns the longest streak of the worker's emergency brake in any of its logs, or None."""
    found = []
    for log, _ in page.all("log_info", run=key.run, worker=key.worker):
        which = {"run": key.run, "log": log.get("log", "")}
        for labels, streak in page.all("log_match_streak", **which):
            pattern = labels.get("pattern", "")
            last = page.maybe("log_last_match_timestamp_seconds", **which, pattern=pattern)
            if EMERGENCY_BRAKE_PATTERN in pattern and last is not None:
                found.append(EmergencyBrakeState(streak, last))
    return max(found, key=lambda brake: brake.streak, default=None)
