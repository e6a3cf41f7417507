"""Derives the specs of a run from its configuration and its framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.checkpoints.config import AnnouncedCheckpoint, merged_checkpoints
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import Framework, LinePattern, LogLayout, Phase
from trainwarden_exporter.frameworks.common_patterns import RESTARTED
from trainwarden_exporter.frameworks.error_lines import (
    CLIENT_ERRORS,
    COMMON_ERROR_PATTERNS,
    OTHER_NAMES,
)
from trainwarden_exporter.frameworks.path_resolution import PathTemplate
from trainwarden_exporter.logs.config import AnnouncedLog, LogConfig
from trainwarden_exporter.logs.specs import LogBegin, LogSpec
from trainwarden_exporter.progress.progress_files import ProgressFileSpec
from trainwarden_exporter.progress.specs import TRAINER, ProgressSpec
from trainwarden_exporter.rollouts.config import RolloutConfig, merged_rollouts
from trainwarden_exporter.rollouts.specs import LAG_LIMIT, RolloutSpec
from trainwarden_exporter.run_config import AnnouncedRun, RunConfig
from trainwarden_exporter.step_dirs.locations import RunLocation


def checkpoint_specs(run: RunConfig) -> tuple[CheckpointSpec, ...]:
    """Returns all checkpoint specs; for a run without a path only those with absolute folders."""
    known = get_framework(run.framework)
    chosen = merged_checkpoints(known.checkpoints if run.path else (), run.checkpoints)
    location = _location(
        run, [template for one in run.checkpoints for _, template in one.templates]
    )
    intervals = {one.name: one.interval for one in run.checkpoints}
    announced = {
        one.name: RunLocation(Path("/"), tuple(name for _, name in one.templates), (), one.account)
        for one in run.checkpoints
        if isinstance(one, AnnouncedCheckpoint)
    }
    return tuple(
        CheckpointSpec(run.name, announced.get(one.name, location), one, intervals.get(one.name))
        for one in chosen
    )


def copy_specs(run: RunConfig) -> tuple[CheckpointSpec, ...]:
    """Returns the specs of the copies in the second place; none of absolute folders."""
    if run.copies is None:
        return ()
    specs = [one for one in checkpoint_specs(run) if not one.layout.folder.startswith("/")]
    templates = tuple(dict.fromkeys(one.layout.folder for one in specs))
    location = RunLocation(run.copies, templates, tuple(sorted(run.variables.items())))
    return tuple(
        replace(one, location=location, layout=replace(one.layout, recovery=None), is_copy=True)
        for one in specs
    )


def _location(run: RunConfig, configured: Iterable[str]) -> RunLocation:
    """Returns the location of `run` for its framework's templates and the `configured` ones."""
    templates = get_framework(run.framework).templates if run.path else ()
    return RunLocation(
        run.path or Path("/"),
        tuple(dict.fromkeys((*templates, *configured))),
        tuple(sorted(run.variables.items())),
        _account(run),
    )


def _account(run: RunConfig) -> int | None:
    return run.account if isinstance(run, AnnouncedRun) else None


def rollout_specs(run: RunConfig) -> tuple[RolloutSpec, ...]:
    """Returns all rollout specs; for a run without a path only those with absolute folders."""
    known = get_framework(run.framework)
    location = _location(run, [template for one in run.rollouts for _, template in one.templates])
    specs = []
    for name, layout, settings in merged_rollouts(known.rollouts if run.path else (), run.rollouts):
        config = settings or RolloutConfig(name=name)
        carries = layout.carries if layout else config.carries or "batches"
        lag_limit, staleness_limit = config.lag_limit, config.staleness_limit
        if layout is not None:
            lag_limit = layout.lag_limit if lag_limit is None else lag_limit
            staleness_limit = layout.staleness_limit if staleness_limit is None else staleness_limit
            if lag_limit is None and carries == "batches":
                lag_limit = LAG_LIMIT
        limits = (config.ranks, lag_limit, staleness_limit)
        specs.append(RolloutSpec(run.name, name, carries, location, layout, *limits))
    return tuple(specs)


def log_specs(run: RunConfig) -> tuple[LogSpec, ...]:
    """Returns the logs of `run`: those of its framework and those configured.

    Raises ValueError for an unknown framework.
    """
    known = get_framework(run.framework)
    logs = {log.name: (log, LogConfig(name=log.name)) for log in known.logs if run.path}
    for config in run.logs:
        before = logs[config.name][0] if config.name in logs else LogLayout(config.name, ())
        logs[config.name] = (_merge_log(before, config), config)
    places: dict[str, int] = {}
    for log, _ in logs.values():
        places[log.deduplication_group] = places.get(log.deduplication_group, 0) + len(log.files)
    return tuple(
        _log_spec(
            run,
            known,
            log,
            config,
            by_file=bool(log.deduplication_group) and places[log.deduplication_group] == 1,
        )
        for log, config in logs.values()
        if log.files
    )


def line_patterns(
    known: Framework, config: LogConfig, *, has_own_steps: bool = False, has_servers: bool = True
) -> tuple[LinePattern, ...]:
    """Returns the patterns for a log; of several with the same name, the most specific one.

    With `has_own_steps`, the configuration names a source of the step; with `has_servers`, an
    inference server, whose failure leaves the run hanging.
    """
    defaults = () if has_own_steps else known.default_lines
    everywhere = [*COMMON_ERROR_PATTERNS, *known.lines, *defaults]
    if not has_servers:
        everywhere = [
            replace(one, name=CLIENT_ERRORS.get(one.name, one.name)) for one in everywhere
        ]
    own = {one.name: one.pattern() for one in config.patterns}
    left_out = {*config.disabled_patterns}
    left_out |= {OTHER_NAMES[name] for name in (*left_out, *own) if name in OTHER_NAMES}
    patterns = {one.name: one for one in everywhere if one.name not in left_out} | own
    if isinstance(config, AnnouncedLog):
        patterns[RESTARTED.name] = RESTARTED
    return tuple(
        replace(one, resets=OTHER_NAMES[one.resets])
        if one.resets in OTHER_NAMES.keys() - patterns.keys()
        else one  # itself: RESTARTED is known by its identity
        for one in patterns.values()
    )


def _has_servers(run: RunConfig, known: Framework) -> bool:
    return bool(run.inference) or any(role.engine for role in known.roles)


def _has_own_steps(run: RunConfig) -> bool:
    """Whether the configuration of `run` names a source of its step."""
    return bool(run.progress.files) or any(
        "(?P<step>" in pattern.regex for log in run.logs for pattern in log.patterns
    )


def _merge_log(log: LogLayout, config: LogConfig) -> LogLayout:
    return replace(
        log,
        files=config.files or log.files,
        deduplication_group=log.deduplication_group
        if config.deduplication_group is None
        else config.deduplication_group,
    )


def _log_spec(
    run: RunConfig, known: Framework, log: LogLayout, config: LogConfig, *, by_file: bool
) -> LogSpec:
    roles = {worker.name: worker.role for worker in run.workers}
    role = config.role or (roles[config.worker] if config.worker else log.role)
    alone = [worker for worker in roles if role and roles[worker] == role]
    worker = config.worker or (alone[0] if len(alone) == 1 else "")
    return LogSpec(
        run=run.name,
        name=log.name,
        path=run.path or Path("/"),
        files=log.files,
        patterns=line_patterns(
            known, config, has_own_steps=_has_own_steps(run), has_servers=_has_servers(run, known)
        ),
        role=role,
        writers=(worker,) if worker else tuple(alone),
        worker=worker,
        instance_templates=() if _is_per_instance(log, run.variables) else known.templates,
        variables=tuple(sorted(run.variables.items())),
        deduplication_group=log.deduplication_group,
        by_file=by_file,
        silence_limit=config.silence_limit,
        longest_line=config.longest_line,
        begin=LogBegin(config.offset, config.announced_at)
        if isinstance(config, AnnouncedLog)
        else None,
        account=None if all(file.startswith("/") for file in log.files) else _account(run),
    )


def _is_per_instance(log: LogLayout, variables: Mapping[str, str]) -> bool:
    """Whether the files of `log` belong to exactly one instance of the run."""
    return all(PathTemplate(file).names <= variables.keys() for file in log.files)


def progress_spec(run: RunConfig) -> ProgressSpec:
    """Returns how to follow the progress of `run`. Raises ValueError for an unknown framework."""
    known = get_framework(run.framework)
    files = {file.name: file for file in known.progress_files}
    files |= {file.name: file.source() for file in run.progress.files}
    location = _location(run, [one.file for one in files.values()])
    file_specs = tuple(ProgressFileSpec(run.name, location, file) for file in files.values())
    lines = {(log.name, line.name): line for log in log_specs(run) for line in log.patterns}
    own = {pattern.name for log in run.logs for pattern in log.patterns}
    return ProgressSpec(
        run=run.name,
        framework="" if run.framework == "generic" else known.title,
        path=run.path,
        account=_account(run),
        limits=run.progress.limits(known.phase_limits),
        total=run.progress.total_steps,
        lines=lines,
        default_lines=frozenset(line.name for line in known.default_lines) - own,
        files=file_specs if run.path else (),
        trainers=trainer_names(run),
        searchers=tuple(one.name for one in run.workers if one.role == "worker"),
        announces_evaluations=any(
            line.phase is Phase.EVALUATING and (known.announces_evaluations or line.name in own)
            for line in lines.values()
        ),
        ettr_minimum=run.progress.ettr_minimum,
    )


def trainer_names(run: RunConfig) -> tuple[str, ...]:
    """Returns the names of the workers that make training steps.

    These have the role `trainer`; else the name `trainer`; else it is the only worker, unless it
    has another role.
    """
    by_role = tuple(worker.name for worker in run.workers if worker.role == TRAINER)
    by_name = tuple(worker.name for worker in run.workers if worker.name == TRAINER)
    plain = tuple(worker.name for worker in run.workers if worker.role == "worker")
    return by_role or by_name or (plain if len(run.workers) == 1 else ())
