"""The schema of exporter.yml."""

from __future__ import annotations

import glob
import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from trainwarden_exporter.checkpoints.config import AnnouncedCheckpoint, CheckpointConfig
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import LocalPath
from trainwarden_exporter.containers.config import DockerConfig
from trainwarden_exporter.disk.config import Disks
from trainwarden_exporter.exceptions import Problem
from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.heartbeats.registry import HeartbeatConfig
from trainwarden_exporter.host.config import HostConfig
from trainwarden_exporter.inference.addresses import check_ready_address
from trainwarden_exporter.inference.config import AnnouncedServer, TlsConfig, Url
from trainwarden_exporter.logs.config import AnnouncedLog
from trainwarden_exporter.processes.announcements import AnnouncedRuns, AnnouncedWorker
from trainwarden_exporter.processes.worker_trials import TRIAL_PREFIX
from trainwarden_exporter.progress.beats import default_beats_folder
from trainwarden_exporter.run_config import AnnouncedRun, RunConfig
from trainwarden_exporter.run_specs import log_specs

_UNFINISHED = r"(?i:(?<![a-z])(?:tmp|temp|partial|incomplete)(?![a-z])|\.part$)"
_NUMBERED_ENTRY = rf"(?!.*{_UNFINISHED})(?:[^.]*[^.\d])?(?P<step>\d+)(?:\.[A-Za-z]\w*)*"
"""Name of a checkpoint of any kind: `checkpoint-500`, `epoch=3-step=120.ckpt`, `100`."""
_OVERWRITTEN_ENTRY = (
    r"(?i)(?:[a-z_-]+[_.-])?(?:ckpt|checkpoint|latest|last|model|resume|snapshot|state)(?:[_-][a-z_-]+)?"
    r"\.(?:ckpt|msgpack|npz|pkl|pt|pth|safetensors|tar)"
    # not any prefix: trainer_state.json and the like describe a checkpoint
    r"|(?:ckpt|checkpoint)\.json"
)
"""Name of a file that each save overwrites: `ckpt.pt`, `last.ckpt`, `checkpoint.json`. It does not
tell the step."""
_UNFINISHED_ENTRY = rf"(?=.*{_UNFINISHED}).*?(?P<step>\d+)\D*"


class RemediatorConfig(Section):
    """Source of the alerts and actions on the status page. Not used by metrics or collectors."""

    url: Url
    """Address of the remediator, such as `http://127.0.0.1:10978`. A remediator that reads
    another exporter.yml is not shown."""

    tls: TlsConfig | None = None
    """TLS settings of an https connection."""


class Config(Section):
    """The configuration of the exporter. An empty file is valid: only the host is observed."""

    host: HostConfig = HostConfig()
    """The machine, or the container that the exporter runs in."""

    gpu: GpuConfig = GpuConfig()
    """The NVIDIA GPUs of the machine."""

    disks: Disks = ()
    """Disks to observe in addition to the disks that hold the paths of the runs."""

    docker: DockerConfig = DockerConfig()
    """The Docker engine of the machine, for runs with Docker containers."""

    state_folder: LocalPath | None = None
    """Folder for state that survives a restart of the exporter: finished workers and recent
    starts of workers and containers. Without it, after a restart of the exporter a finished
    worker counts as missing, and the counts of restart loops and of trials start from zero."""

    runs: tuple[RunConfig, ...] = ()
    """The training runs, each with its workers."""

    heartbeats: tuple[HeartbeatConfig, ...] = ()
    """Expected heartbeats of watchdogs, cron jobs, trainers and similar programs."""

    heartbeats_accept: Literal["configured", "any"] = "configured"
    """Whether heartbeats with unconfigured names are accepted too, up to 100 names."""

    runs_folder: LocalPath | None = None
    """Folder in which `trainwarden run` announces runs: `runs.d` in its TRAINWARDEN_FOLDER.
    Default: the folder that programs of this exporter's account use."""

    beats_folder: LocalPath | None = None
    """Folder into which `trainwarden.beat` writes: `beats` in the TRAINWARDEN_FOLDER of the
    runs. Default: the folder that programs of this exporter's account use."""

    remediator: RemediatorConfig | None = None
    """The remediator of this host; the status page shows its alerts and last actions."""

    grafana_url: Url | None = None
    """Address of the Grafana that has the boards; pages and reports link to it."""

    @model_validator(mode="after")
    def _check_run_names(self) -> Self:
        unique_by(self.runs, "name", "run", "runs")
        return self

    @model_validator(mode="after")
    def _check_own_container(self) -> Self:
        if self.state_folder is None:
            for number, run in enumerate(self.runs):
                for index, container in enumerate(run.containers):
                    if container.own:
                        message = "needs a state_folder, which keeps the number of starts"
                        raise LocatedError(message, "runs", number, "containers", index, "self")
        return self

    @model_validator(mode="after")
    def _check_trials(self) -> Self:
        for number, run in enumerate(self.runs):
            telling = {
                spec.worker
                for spec in log_specs(run)
                if any(pattern.name.startswith(TRIAL_PREFIX) for pattern in spec.patterns)
            }
            for index, worker in enumerate(run.workers):
                if worker.trials_limit is not None and worker.name not in telling:
                    raise LocatedError(
                        f"no log with `worker: {worker.name}` has a pattern named {TRIAL_PREFIX}…",
                        *("runs", number, "workers", index, "trials_limit"),
                    )
        return self

    @model_validator(mode="after")
    def _check_heartbeats(self) -> Self:
        runs = {run.name for run in self.runs}
        seen: set[tuple[str | None, str]] = set()
        for index, one in enumerate(self.heartbeats):
            if one.run is not None and one.run not in runs:
                raise LocatedError(f"no run has the name {one.run}", "heartbeats", index, "run")
            if (one.run, one.name) in seen:
                message = f"another heartbeat of the run has the name {one.name}"
                raise LocatedError(message, "heartbeats", index, "name")
            seen.add((one.run, one.name))
        return self


def load_config(path: Path) -> Config:
    """Loads the configuration in `path`. Raises ConfigError with all problems."""
    return loader.load(path, Config)


def announcements_folder(config: Config) -> Path | None:
    """Returns the folder of announced runs; None for an account without a home."""
    if config.runs_folder is not None:
        return config.runs_folder
    beats = default_beats_folder()
    return None if beats is None else beats.with_name("runs.d")


def with_announced(config: Config, announced: AnnouncedRuns) -> tuple[Config, tuple[Problem, ...]]:
    """Returns `config` with the announced workers, and why some of them are left out.

    A worker in the file takes precedence over an announced one of the same name, and so does the
    path of a run in the file, with its framework. No worker is added to a run of another account.
    """
    own = (0, os.geteuid())
    runs = {run.name: run for run in config.runs}
    configured = dict(runs)
    accounts: dict[str, int] = {}
    problems = []
    for key, worker in sorted(announced.workers.items(), key=lambda one: one[1].uid not in own):
        before = runs.get(key.run)
        if before is not None and any(one.name == key.worker for one in before.workers):
            continue
        if before is not None and key.run in configured:
            is_foreign = before.user not in _names(worker.uid)
        else:
            is_foreign = accounts.setdefault(key.run, worker.uid) != worker.uid
        if is_foreign and worker.uid not in own:
            problems.append(Problem(worker.file, None, "", "the run belongs to another account"))
            continue
        kept = configured.get(key.run)
        if (refused := _refused_address(worker.announcement.ready)) is not None:
            problems.append(Problem(worker.file, None, "ready", refused))
            without = worker.announcement.model_copy(update={"ready": None})
            worker = replace(worker, announcement=without)  # noqa: PLW2901
        try:
            found = _add_worker(
                before,
                worker,
                account=None if worker.uid in own else worker.uid,
                keeps_path=kept is not None and kept.path is not None,
            )
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            problems.append(Problem(worker.file, None, "", message))
            continue
        runs[key.run] = found
    if list(runs.values()) == list(config.runs):
        return config, tuple(problems)
    return config.model_copy(update={"runs": tuple(runs.values())}), tuple(problems)


def _refused_address(ready: str | None) -> str | None:
    """Returns why a server cannot be asked at an announced address; None if it can."""
    try:
        if ready is not None:
            check_ready_address(ready)
    except ValueError as error:
        return str(error)
    return None


def _names(uid: int) -> tuple[str, ...]:
    """Returns how `user` can name an account."""
    try:
        return str(uid), pwd.getpwuid(uid).pw_name
    except KeyError:
        return (str(uid),)


def _add_worker(
    run: RunConfig | None, announced: AnnouncedWorker, *, account: int | None, keeps_path: bool
) -> RunConfig:
    """Returns `run` with the announced worker, in whose folders no more than `account` may is read.

    Raises ValidationError.
    """
    one = announced.announcement
    worker = {
        "name": one.worker,
        "role": one.role,
        "match": {"pid_file": announced.pid_file, "user": str(announced.uid)},
        "finishes": one.finishes,
        "memory_limit": one.memory_limit and f"{one.memory_limit}B",
        "age_limit": one.age_limit,
    }
    log = AnnouncedLog.model_validate({
        "name": one.worker,
        "files": [str(one.log)],
        "worker": one.worker,
        "offset": one.log_offset,
        "announced_at": one.announced_at,
        "working_folder": Path(one.cwd) if one.cwd and account is None else None,
        "checkpoint_folder": one.checkpoints if account is None else None,
    })  # fmt: skip
    added = RunConfig.model_validate(
        {
            "name": one.run,
            "framework": one.framework,
            "path": one.path,
            "workers": [worker],
            "checkpoints": _any_checkpoints(one.worker, one.checkpoints, account),
            "logs": [] if one.log is None else [log],
            "inference": [AnnouncedServer(name=one.worker, worker=one.worker, ready=one.ready)]
            if one.role == "inference"
            else [],
        },
        context={"folder": announced.file.parent},
    )
    if run is None:
        return _announced_by(account, added)
    taken = {log.name for log in run.logs}
    has_path = one.path is not None and not keeps_path
    found = run.model_copy(
        update={
            "workers": (*run.workers, *added.workers),
            "logs": (*run.logs, *(log for log in added.logs if log.name not in taken)),
            "inference": (*run.inference, *added.inference),
            "checkpoints": (*run.checkpoints, *added.checkpoints),
            **({"path": added.path, "framework": added.framework} if has_path else {}),
        }
    )
    return _announced_by(account, found) if has_path else found


MAX_ANNOUNCED_FOLDERS = 16


def announced_folders(config: Config) -> Iterator[Path]:
    """Yields where the announced runs of this account write logs and checkpoints, and work.

    The newest first, and not all of a sweep: each folder has a thread.
    """
    found = [log for run in config.runs for log in run.logs if isinstance(log, AnnouncedLog)]
    own = [(log, log.working_folder) for log in found if log.working_folder is not None]
    own.sort(key=lambda one: one[0].announced_at, reverse=True)
    for log, working_folder in own[:MAX_ANNOUNCED_FOLDERS]:
        yield from (Path(file).parent for file in log.files)
        yield working_folder
        if log.checkpoint_folder is not None:
            yield log.checkpoint_folder


def _announced_by(account: int | None, run: RunConfig) -> RunConfig:
    """Returns `run`, in whose path no more is read than `account` may read (None: anything)."""
    if account is None:
        return run
    content: dict[str, Any] = {name: getattr(run, name) for name in RunConfig.model_fields}
    return AnnouncedRun.model_construct(**content, account=account)


def _any_checkpoints(name: str, folder: Path | None, account: int | None) -> list[CheckpointConfig]:
    """Returns the checkpoints in a folder about which nothing else is known.

    A file that is overwritten is a kind of its own: beside numbered ones, its step is theirs.
    """
    if folder is None:
        return []
    common = {"folder": glob.escape(str(folder)), "complete": {"settled": ["*"]}}
    kinds: tuple[dict[str, Any], ...] = (
        {"name": name, "entry": _NUMBERED_ENTRY, "partial": _UNFINISHED_ENTRY},
        {"name": f"{name}-overwritten", "entry": _OVERWRITTEN_ENTRY},
    )
    if account is None:
        return [CheckpointConfig.model_validate(common | kind) for kind in kinds]
    own = {"account": account}
    return [AnnouncedCheckpoint.model_validate(common | kind | own) for kind in kinds]
