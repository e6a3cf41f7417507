"""The configuration of the remediator: the top level of remediator.yml and its loader."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, StringConstraints, model_validator

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config import announcements_folder, with_announced
from trainwarden_exporter.config import load_config as load_exporter_config
from trainwarden_exporter.config_file.loader import (
    LocatedError,
    Location,
    Section,
    load,
    problem_at,
)
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds, Space
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.announcements import AnnouncedRuns, read_announcements
from trainwarden_exporter.processes.config import (
    WorkerConfig,
    hash_workers,
    hash_workers_by_run,
    workers_by_key,
)
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs, trainer_names
from trainwarden_exporter.runtime.similar_names import similar
from trainwarden_remediator.config.endpoints import BaseUrl, Endpoint, PullSettings
from trainwarden_remediator.config.limits import BreakerSettings, FailsafeSettings, JournalLimits
from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.config.playbooks import (
    PLAYBOOKS,
    TARGETLESS_ACTIONS,
    Playbook,
    with_shipped_condition,
)
from trainwarden_remediator.config.restart_methods.run import run_methods, why_no_target
from trainwarden_remediator.config.targets import GPUS, AnnouncedTarget, GpuCleanup, Target

__all__ = ["PLAYBOOKS", "Config", "Setup", "load_setup"]


class ExporterEndpoint(Endpoint):
    """The exporter of this host, which confirms a condition before an action and health after."""

    # Validates the default too, so that its path is relative to the file.
    model_config = ConfigDict(revalidate_instances="always")

    url: BaseUrl = "http://127.0.0.1:10977"
    """The base URL of the exporter."""
    config: LocalPath = Path("exporter.yml")
    """The configuration file of the exporter; its selectors find the processes to terminate."""


class AlertmanagerEndpoint(Endpoint):
    """The Alertmanager, which confirms right before an action that the alert still fires."""

    # As above.
    model_config = ConfigDict(revalidate_instances="always")

    url: BaseUrl = "http://127.0.0.1:9093"
    """The base URL of Alertmanager."""
    pull: PullSettings | None = None
    """Poll Alertmanager for the alerts of this host instead of receiving webhooks."""


TimeOfDay = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class Config(Section):
    """The content of remediator.yml."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "forget_after": "alert_stale_after",
        "widespread_patience": "mass_failure_hold",
        "brake": "failsafe",
    }

    mode: Literal["observe", "act"] = "observe"
    """`observe`: record decisions without acting on them. `act`: also carry them out."""
    token_file: LocalPath | None = None
    """The file with the bearer tokens that authenticate webhooks, one per line; read again when it
    changes."""
    client_certificates: bool = False
    """Whether a client certificate authenticates webhooks instead of a token. The file of
    `--web.config.file` must require one; otherwise the program does not start."""
    insecure: bool = False
    """Whether to accept unauthenticated webhooks. Any client that reaches the port can then cause
    restarts."""
    journal: LocalPath = Path("journal.db")
    """The SQLite file that records alerts, decisions and actions. It must be on a local disk:
    network file systems can lose its locks."""
    journal_limits: JournalLimits = JournalLimits()
    """Retention of the journal."""
    hold_file: LocalPath = Path("hold")
    """While this file exists, the remediator takes no action. `trainwarden hold` creates it,
    `resume` removes it."""
    alert_stale_after: Seconds = 600
    """How long after its last repetition by Alertmanager an alert still counts as firing."""
    exporter: ExporterEndpoint = ExporterEndpoint()
    """The exporter of this host."""
    alertmanager: AlertmanagerEndpoint = AlertmanagerEndpoint()
    """The Alertmanager that sends the webhooks."""
    disk_reserve: Space = 1 << 30
    """The free space that each disk of a run must have for a restart (on a small disk, 1 % of its
    size). A disk that is out of inodes, read-only or not responding also blocks the restart."""
    failsafe: FailsafeSettings = FailsafeSettings()
    """What the remediator does about a memory shortage when no alerts arrive."""
    breaker: BreakerSettings = BreakerSettings()
    """The circuit breaker: the maximum number of actions on this host."""
    notify: NotifySettings = NotifySettings()
    """The notifications that the remediator sends directly."""
    unattended_until: TimeOfDay = "08:00"
    """The time of day, on the clock of this host, at which an operator looks at the run in the
    morning. The report assumes that a fault of the twelve hours before it would have lasted until
    then without healing; of one by day it assumes nothing."""
    answered_after: Seconds | None = None
    """How long after a fault an operator would have answered its alert. If set, the report assumes
    that a fault would have lasted so long without healing, whatever the time of day."""
    mass_failure_hold: Seconds = 60
    """How long to hold restarts when half of the targets, and at least two, are down at the same
    time; then the targets are restarted one at a time. Not after a reboot, and for up to three
    commands that `trainwarden run` saw fail there is no hold. The runs that another account
    announces are counted alone."""
    targets: tuple[Target, ...] = ()
    """The workers that the remediator may act on."""
    gpu_cleanup: GpuCleanup | None = None
    """Which leftover processes that hold a GPU may be terminated; default: none."""
    playbooks: Annotated[Mapping[Name, Playbook], BeforeValidator(with_shipped_condition)] = {}
    """Playbooks by the value of the alert label `remediation`; they extend or replace the shipped
    playbooks."""

    @model_validator(mode="after")
    def _targets_are_distinct(self) -> Self:
        seen: set[WorkerKey] = set()
        for index, target in enumerate(self.targets):
            for key in target.keys:
                if key in seen:
                    raise LocatedError(
                        f"a second target for worker {key.worker} of run {target.run}",
                        "targets",
                        index,
                    )
            seen.update(target.keys)
            method = target.restart_method
            if any(method.restarts_same(one.restart_method) for one in self.targets[:index]):
                raise LocatedError(
                    f"a second target that restarts {method.summary}: "
                    "name its workers with `additional_workers`",
                    "targets",
                    index,
                )
        return self

    @model_validator(mode="after")
    def _webhooks_carry_a_token(self) -> Self:
        ways = (self.token_file, self.alertmanager.pull, self.client_certificates, self.insecure)
        if not any(ways):
            raise LocatedError(
                "missing: the file with the bearer token that Alertmanager sends "
                "(or `client_certificates: true`, or `alertmanager.pull`; or `insecure: true`, "
                "which lets any client that reaches the port cause restarts)",
                "token_file",
            )
        return self

    def playbook(self, name: str) -> Playbook | None:
        return self.playbooks.get(name) or PLAYBOOKS.get(name)

    def target(self, key: WorkerKey) -> Target | None:
        """Returns the target of a worker, or None."""
        return next((target for target in self.targets if key in target.keys), None)

    def breaker_limit(self, account: int | None = None) -> int:
        """Returns the maximum number of actions on the targets of `Budget.account`."""
        return self.breaker.limit(sum(target.account == account for target in self.targets))

    def budget(self, key: WorkerKey) -> Target | GpuCleanup | None:
        """Returns the target of a worker, the GPU cleanup for `GPUS`, or None."""
        return self.gpu_cleanup if key == GPUS else self.target(key)


@dataclass(frozen=True)
class Setup:
    """A remediator.yml together with the exporter.yml it names."""

    config: Config
    exporter_config: ExporterConfig
    """The content of exporter.yml."""
    stopped: frozenset[WorkerKey] = frozenset()
    """Workers of `trainwarden run` that an operator stopped."""
    announced: AnnouncedRuns = field(default_factory=AnnouncedRuns)
    """The runs of `trainwarden run`."""
    run_hashes: Mapping[str, int] = field(default_factory=dict)
    """For each run the hash of the workers that can find a process of its accounts."""

    @cached_property
    def workers(self) -> Mapping[WorkerKey, WorkerConfig]:
        """The workers in exporter.yml."""
        return workers_by_key(self.exporter_config.runs)

    @property
    def selectors(self) -> Mapping[WorkerKey, Selector]:
        """The process selector of each worker in exporter.yml."""
        return {key: worker.match for key, worker in self.workers.items()}

    @cached_property
    def workers_hash(self) -> int:
        """The hash of the workers in exporter.yml, as the exporter shows it."""
        return hash_workers(self.exporter_config.runs)

    def workers_hash_of(self, run: str) -> int:
        """The hash of the workers that an action on `run` depends on; all workers for ""."""
        return self.run_hashes.get(run, self.workers_hash)

    def is_trainer(self, key: WorkerKey) -> bool:
        """Whether a worker is a trainer of its run, by the exporter's rule."""
        run = self.run_config(key.run)
        return run is not None and key.worker in trainer_names(run)

    def may_finish(self, key: WorkerKey) -> bool:
        """Whether a worker that has exited with status 0 counts as finished, not as missing."""
        worker = self.workers.get(key)
        return worker is not None and worker.finishes

    @cached_property
    def trainer_keys(self) -> Collection[WorkerKey]:
        """The trainers of all runs, with a target or without."""
        runs = self.exporter_config.runs
        return {WorkerKey(run.name, name) for run in runs for name in trainer_names(run)}

    def trainers(self, run: str) -> tuple[Target, ...]:
        targets = (target for target in self.config.targets if target.run == run)
        return tuple(target for target in targets if any(map(self.is_trainer, target.keys)))

    def describe_several_trainers(self, run: str) -> str:
        """Says which trainers of a run are targets of their own; empty for one or none.

        A run that stalls as a whole is not healed by one of them.
        """
        *names, last = [target.worker for target in self.trainers(run)] or [""]
        return f"{', '.join(names)} and {last} are trainers of several targets" if names else ""

    @property
    def restartable(self) -> Collection[WorkerKey]:
        """The workers that may be restarted."""
        targets = (target for target in self.config.targets if target.can_be_restarted)
        return {key for target in targets for key in target.keys}

    def why_no_target(self, run: str, worker: str) -> str:
        """Returns why no target is this worker, without one a trainer of the run, or ""."""
        keys = {WorkerKey(run, worker)} if worker else self.trainer_keys
        found = (self.announced.workers[key] for key in keys & self.announced.workers.keys())
        return next((why_no_target(one) for one in found if one.announcement.run == run), "")

    @property
    def started(self) -> Mapping[WorkerKey, float]:
        """When an operator started the commands of `trainwarden run` that have not ended."""
        commands = {key: one.announcement for key, one in self.announced.workers.items()}
        return {key: one.announced_at for key, one in commands.items() if not one.has_ended}

    @property
    def calls(self) -> bool:
        """Whether a receiver is notified of what the remediator gives up."""
        return any("gave_up" in one.events for one in self.config.notify.receivers)

    @property
    def pages(self) -> bool:
        """Whether a receiver is notified where a playbook calls an operator."""
        return any("paged" in one.events for one in self.config.notify.receivers)

    @cached_property
    def without_checkpoints(self) -> Collection[str]:
        """The runs of `trainwarden run` of whose checkpoints nothing names a folder."""
        announced = {key.run for key in self.announced.workers}
        runs = (run for run in self.exporter_config.runs if run.name in announced)
        return {run.name for run in runs if not checkpoint_specs(run)}

    def is_stopped(self, run: str, worker: str) -> bool:
        """Whether an operator stopped this worker; without a worker, all of the run."""
        if worker:
            return WorkerKey(run, worker) in self.stopped
        stopped = any(key.run == run for key in self.stopped)
        return stopped and all(key.run != run for key in self.workers)

    def stop_reason(self, run: str, worker: str) -> Literal["stopped", "ended_with_run"]:
        """Returns the reason of the decision about a stopped worker, or about its run."""
        keys = {key for key in self.stopped if key.run == run and worker in ("", key.worker)}
        with_run = bool(keys) and keys <= self.announced.ended_with_run
        return "ended_with_run" if with_run else "stopped"

    def lacks_stopped_trainer(self, run: str) -> bool:
        """Whether an operator stopped workers of the run, and no target left is a trainer."""
        return any(key.run == run for key in self.stopped) and not self.trainers(run)

    def run_path(self, run: str) -> Path | None:
        """Returns the directory that a run writes to, or None if exporter.yml does not set it."""
        found = self.run_config(run)
        return found.path if found is not None else None

    def run_config(self, name: str) -> RunConfig | None:
        """Returns a run of exporter.yml, or None."""
        return next((run for run in self.exporter_config.runs if run.name == name), None)


def load_setup(path: Path, *, mode: Literal["observe", "act"] | None = None) -> Setup:
    """Reads remediator.yml at `path` and the exporter.yml that it names; `mode` overrides its mode.

    Raises ConfigError, also for a target that the exporter does not observe (no action on it could
    be confirmed or verified) and for a rung without a configured target.
    """
    config = load(path, Config)
    if mode is not None:
        config = config.model_copy(update={"mode": mode})
    return load_exporter_file(path, config)


def load_exporter_file(path: Path, config: Config) -> Setup:
    """Reads the exporter.yml that `config` names, the content of remediator.yml at `path`.

    Raises ConfigError as `load_setup`.
    """
    exporter_config = load_exporter_config(config.exporter.config)
    announced = read_announcements(announcements_folder(exporter_config), time.time())
    # a worker that the file names keeps the selector it has there
    added = announced.workers.keys() - workers_by_key(exporter_config.runs).keys()
    exporter_config, _ = with_announced(exporter_config, announced)
    config = _with_announced_targets(config, announced)
    stopped = announced.stopped - workers_by_key(exporter_config.runs).keys()
    hashes = hash_workers_by_run(exporter_config.runs, added)
    setup = Setup(config, exporter_config, stopped, announced, hashes)
    problems = [problem_at(path, text, *place) for text, place in wrong_references(setup)]
    if problems:
        raise ConfigError(*problems)
    return setup


def wrong_references(setup: Setup) -> Iterator[tuple[str, Location]]:
    """Yields what `setup` names and does not have: the error and its place in remediator.yml."""
    known = setup.selectors
    for index, target in enumerate(setup.config.targets):
        for number, key in enumerate(target.keys):
            if key in known:
                continue
            place = ("additional_workers", number - 1) if number else ("worker",)
            yield _unknown_worker(setup, key), ("targets", index, *place)
    yield from _missing_rung_targets(setup)


def _unknown_worker(setup: Setup, key: WorkerKey) -> str:
    file, runs = setup.config.exporter.config, {one.run for one in setup.selectors}
    text = f"run {key.run} has no worker {key.worker} in {file}"
    if key.run in runs:
        meant = similar(key.worker, (one.worker for one in setup.selectors if one.run == key.run))
    else:
        meant = similar(key.run, runs)
        meant = f"run {meant}" if meant else ""
    return f"{text} (did you mean {meant}?)" if meant else text


def _with_announced_targets(config: Config, announced: AnnouncedRuns) -> Config:
    """Returns `config` with a target for each announced worker that it does not name itself."""
    named = tuple(one for one in config.targets if not isinstance(one, AnnouncedTarget))
    keys = {key for target in named for key in target.keys}
    added = tuple(
        AnnouncedTarget(run=key.run, worker=key.worker, announced=method)
        for key, method in run_methods(announced).items()
        if key not in keys
    )
    targets = (*named, *added)
    return config if targets == config.targets else config.model_copy(update={"targets": targets})


def _missing_rung_targets(setup: Setup) -> Iterator[tuple[str, Location]]:
    """Yields, for each rung in the file whose target is not configured, the error and its place."""
    missing = {}
    if not any(setup.is_trainer(key) for target in setup.config.targets for key in target.keys):
        missing["trainer"] = (
            f"no target is a trainer (role: trainer in {setup.config.exporter.config})"
        )
    if setup.config.gpu_cleanup is None:
        missing["gpus"] = "`gpu_cleanup` does not allow it"
    for name, playbook in setup.config.playbooks.items():
        for index, rung in enumerate(playbook.ladder):
            if rung.action not in TARGETLESS_ACTIONS and rung.target in missing:
                place = ("rungs", index, "target") if playbook.rungs else ("target",)
                yield missing[rung.target], ("playbooks", name, *place)
