"""The remediator's configuration: what may be done, to what, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, model_validator

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config import load_config as load_exporter_config
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.progress.specs import trainers
from trainwarden_exporter.units import Bytes, LocalPath, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section, load, problem_at
from trainwarden_remediator.brakesettings import LocalBrake
from trainwarden_remediator.breaker import Breaker
from trainwarden_remediator.endpoints import BaseUrl, Endpoint
from trainwarden_remediator.journalsettings import JournalLimits
from trainwarden_remediator.notifying.models import Notify
from trainwarden_remediator.playbooks import (
    PLAYBOOKS,
    UNTOUCHING,
    Playbook,
    with_known_trouble,
)
from trainwarden_remediator.pullsettings import Pull
from trainwarden_remediator.targets import GPUS, GpuCleanup, Target

__all__ = ["PLAYBOOKS", "Config", "Setup", "load_setup"]


class Exporter(Endpoint):
    """The exporter of this box: the eyes that confirm trouble before an act and health after it."""

    # So that also where the section is left out, the path is relative to the file.
    model_config = ConfigDict(revalidate_instances="always")

    url: BaseUrl = "http://127.0.0.1:10977"
    """Where it listens."""
    config: LocalPath = Path("exporter.yml")
    """The exporter's own file: the same selectors find the processes to end."""


class Alertmanager(Endpoint):
    """Where it is asked, right before an act, whether the alert still stands."""

    # As above.
    model_config = ConfigDict(revalidate_instances="always")

    url: BaseUrl = "http://127.0.0.1:9093"
    """Where it listens."""
    pull: Pull | None = None
    """Ask it for the alerts of this box, in place of listening for webhooks."""


class Config(Section):
    """A remediator.yml."""

    mode: Literal["observe", "act"] = "observe"
    """`observe` decides and records, and touches nothing."""
    token_file: LocalPath | None = None
    """Bearer tokens of which a webhook must carry one, one per line; re-read when it changes."""
    client_certificates: bool = False
    """Webhooks need no token, but the client certificate that the file of `--web.config.file`
    demands; where that demands none, the program does not start."""
    insecure: bool = False
    """Accept webhooks that carry no token. Anyone who reaches the port may then cause restarts."""
    journal: LocalPath = Path("journal.db")
    """Where everything is written down; a local disk, for a network mount can lose its locks."""
    journal_limits: JournalLimits = JournalLimits()
    """How much of the past is kept there."""
    hold_file: LocalPath = Path("hold")
    """While this file exists nothing is done. `trainwarden-remediator hold` and `resume` make and
    remove it."""
    forget_after: Seconds = 600
    """An alert that Alertmanager has not repeated for this long is not acted upon any more."""
    exporter: Exporter = Exporter()
    """The exporter of this box."""
    alertmanager: Alertmanager = Alertmanager()
    """The Alertmanager that sends the webhooks."""
    disk_reserve: Bytes = 1 << 30
    """A run is not restarted while a disk that it writes to has less than this free (on a small
    one, less than 1 %), is out of inodes, cannot be written to, or does not answer."""
    brake: LocalBrake = LocalBrake()
    """What is done about a lack of memory when no alerts come any more."""
    breaker: Breaker = Breaker()
    """How much may be done on this box before a person is asked."""
    notify: Notify = Notify()
    """Who is called when a person is needed."""
    widespread_patience: Seconds = 60
    """How long nothing is brought back when half of the targets, and at least two, are down at once
    (other than after a restart of the box); then one is brought back after the other."""
    targets: tuple[Target, ...] = ()
    """The workers that may be acted upon."""
    gpu_cleanup: GpuCleanup | None = None
    """Whether leftovers that hold a GPU may be ended, and which; none may when not given."""
    playbooks: Annotated[Mapping[Name, Playbook], BeforeValidator(with_known_trouble)] = {}
    """What an alert's label `remediation` stands for, beside or instead of what is shipped."""

    @model_validator(mode="after")
    def _targets_are_distinct(self) -> Self:
        seen: set[WorkerKey] = set()
        for index, target in enumerate(self.targets):
            for key in target.keys:
                if key in seen:
                    raise MisplacedError(
                        f"a second target for worker {key.worker} of run {target.run}",
                        "targets",
                        index,
                    )
            seen.update(target.keys)
            means = target.means
            if any(means.is_same(one.means) for one in self.targets[:index]):
                raise MisplacedError(
                    f"a second target that restarts {means.told}: name its workers with `also`",
                    "targets",
                    index,
                )
        return self

    @model_validator(mode="after")
    def _webhooks_carry_a_token(self) -> Self:
        ways = (self.token_file, self.alertmanager.pull, self.client_certificates, self.insecure)
        if not any(ways):
            raise MisplacedError(
                "needed: a file with the bearer token that Alertmanager sends "
                "(or `client_certificates: true`, or `alertmanager.pull`; or `insecure: true`, "
                "which lets anyone who reaches the port cause restarts)",
                "token_file",
            )
        return self

    def playbook(self, name: str) -> Playbook | None:
        return self.playbooks.get(name) or PLAYBOOKS.get(name)

    def target(self, key: WorkerKey) -> Target | None:
        """What is acted upon for the worker of that name."""
        return next((target for target in self.targets if key in target.keys), None)

    def budget(self, key: WorkerKey) -> Target | GpuCleanup | None:
        """Whatever may be acted upon by that name."""
        return self.gpu_cleanup if key == GPUS else self.target(key)


@dataclass(frozen=True, slots=True)
class Setup:
    """A remediator.yml together with the exporter.yml it names."""

    config: Config
    watched: ExporterConfig
    """The exporter's file."""

    @property
    def selectors(self) -> Mapping[WorkerKey, Selector]:
        """How the processes of each worker of the exporter's file are found."""
        return {
            WorkerKey(run.name, worker.name): worker.match
            for run in self.watched.runs
            for worker in run.workers
        }

    def trains(self, key: WorkerKey) -> bool:
        """Whether that worker makes the steps of its run, by the exporter's own rule."""
        return any(key.worker in trainers(run) for run in self.watched.runs if run.name == key.run)

    def finishes(self, key: WorkerKey) -> bool:
        """Whether that worker is not missed once it has ended with status 0."""
        workers = (one for run in self.watched.runs if run.name == key.run for one in run.workers)
        return any(one.finishes for one in workers if one.name == key.worker)

    def trainers(self, run: str) -> tuple[Target, ...]:
        """The trainers of a run that may be acted upon."""
        targets = self.config.targets
        return tuple(one for one in targets if one.run == run and any(map(self.trains, one.keys)))

    def path(self, run: str) -> Path | None:
        """Where a run writes, if the exporter's file says so."""
        return next((one.path for one in self.watched.runs if one.name == run), None)


def load_setup(path: Path, *, mode: Literal["observe", "act"] | None = None) -> Setup:
    """Read `path` and the exporter's file it names; `mode` takes the place of the file's.

    Raises ConfigError: also for a target that the exporter does not watch, since what cannot be
    seen can be neither confirmed nor verified, and for a rung about what no target is.
    """
    config = load(path, Config)
    if mode is not None:
        config = config.model_copy(update={"mode": mode})
    setup = Setup(config, watched=load_exporter_config(config.exporter.config))
    workers = setup.selectors
    problems = [
        problem_at(
            path,
            f"run {target.run} has no worker {key.worker} in {config.exporter.config}",
            *("targets", index, *(("also", place - 1) if place else ("worker",))),
        )
        for index, target in enumerate(config.targets)
        for place, key in enumerate(target.keys)
        if key not in workers
    ]
    problems += [problem_at(path, said, *place) for said, place in _missing_targets(setup)]
    if problems:
        raise ConfigError(*problems)
    return setup


def _missing_targets(setup: Setup) -> Iterator[tuple[str, tuple[int | str, ...]]]:
    """What the playbooks of the file are about and is nowhere to be found, and where it says so."""
    missing = {}
    if not any(setup.trains(key) for target in setup.config.targets for key in target.keys):
        missing["trainer"] = (
            f"no target is a trainer (role: trainer in {setup.config.exporter.config})"
        )
    if setup.config.gpu_cleanup is None:
        missing["gpus"] = "`gpu_cleanup` does not allow it"
    for name, playbook in setup.config.playbooks.items():
        for index, rung in enumerate(playbook.ladder):
            if rung.action not in UNTOUCHING and rung.target in missing:
                place = ("rungs", index, "target") if playbook.rungs else ("target",)
                yield missing[rung.target], ("playbooks", name, *place)
