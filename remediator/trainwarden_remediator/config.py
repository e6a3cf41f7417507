"""The remediator's configuration: what may be done, to what, and how often."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from trainwarden_exporter.collectors.workers import Name
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config import load_config as load_exporter_config
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.processes.selector import ChoosingPattern
from trainwarden_exporter.units import LocalPath, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section, load, problem_at


def _base_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not a URL: write http://host:port")
    if parts.query or parts.fragment or parts.username:
        raise ValueError("write only scheme, host, port and path; credentials go into a file")
    return text.rstrip("/")


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("an argument cannot hold a NUL character")
    return text


BaseUrl = Annotated[str, AfterValidator(_base_url)]
Argument = Annotated[str, AfterValidator(_argument)]


BACKOFF_LIMIT = 32
"""A cooldown grows to this many times the configured one and no further."""


class Trouble(StrEnum):
    """What a playbook is there to end. It is looked for again just before anything is done."""

    OVER_MEMORY_LIMIT = "over_memory_limit"
    """The worker's resident memory is above its limit."""
    MISSING = "missing"
    """Fewer processes of the worker run than expected, and it has not finished."""
    OVER_AGE_LIMIT = "over_age_limit"
    """The worker has run for longer than its age limit."""
    MEMORY_BELOW_FLOOR = "memory_below_floor"
    """The box (or its container) has less memory available than its floor."""
    GPU_HELD = "gpu_held"
    """Processes of no worker hold a GPU."""
    ANY = "any"
    """Whatever the alert says; only Alertmanager is asked again."""


class Verify(Section):
    """How a healed worker is told from one that merely started."""

    within: Seconds = 60
    """The worker must be seen healthy before this long has passed since it was started."""
    steady: Seconds = 5
    """It must stay so for this long."""


class Playbook(Section):
    """What is done about one kind of trouble."""

    trouble: Trouble
    """What must still be seen by the exporter for anything to be done."""
    target: Literal["worker", "largest_worker", "gpus"] = "worker"
    """The worker the alert names; the configured target that holds the most memory; or the GPUs of
    the box, if `gpu_cleanup` allows it."""
    action: Literal["restart", "clean", "hold"] = "restart"
    """`restart` the worker by its own means; `clean` the GPUs of leftovers; or `hold`: do nothing,
    and let nothing else be done to that worker (to the whole run, if the alert names none) while
    the alert lasts."""
    verify: Verify = Verify()
    """What must be seen after it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        about = {self.trouble is Trouble.GPU_HELD, self.target == "gpus", self.action == "clean"}
        if self.action != "hold" and len(about) > 1:
            raise ValueError("gpu_held, gpus and clean go together, and with nothing else")
        return self


PLAYBOOKS: Mapping[str, Playbook] = {
    "restart_leaking_worker": Playbook(trouble=Trouble.OVER_MEMORY_LIMIT),
    "start_missing_worker": Playbook(trouble=Trouble.MISSING),
    "recycle_aged_worker": Playbook(trouble=Trouble.OVER_AGE_LIMIT),
    "relieve_memory": Playbook(trouble=Trouble.MEMORY_BELOW_FLOOR, target="largest_worker"),
    "hold_restarts": Playbook(trouble=Trouble.ANY, action="hold"),
    "clean_gpu": Playbook(trouble=Trouble.GPU_HELD, target="gpus", action="clean"),
}
"""The playbooks that the shipped rules name; one of the same name in the file takes its place."""


class ProcessTarget(Section):
    """A worker that is a plain process: ended by signals, started by a command line."""

    start: Annotated[tuple[Argument, ...], Field(min_length=1)]
    """The command line, as a list; no shell reads it. Where several processes are expected, it has
    to start them all."""
    cwd: LocalPath = Path()
    """Where it starts; the folder of this file when not given."""
    environment: Mapping[str, str] = {}
    """Variables added to the few that are passed on (PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR)."""
    log: LocalPath | None = None
    """Its output is appended here; discarded when not given."""
    grace: Seconds = 10
    """Seconds between SIGTERM and SIGKILL: what the worker needs to put its work away."""
    user: Name | None = None
    """The account it runs as; needed where the worker's differs from the remediator's own."""


def wait_after(actions: int, cooldown: float) -> float:
    """Seconds to wait after so many actions; each doubles the wait, up to a limit."""
    return cooldown * min(1 << max(actions - 1, 0), BACKOFF_LIMIT)


class Budget(Section):
    """How often something may be acted upon."""

    cooldown: Seconds = 120
    """Least time between two actions on it; doubled with each one in the window."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Actions on it within `attempts_window`; then a person is called instead."""
    attempts_window: Annotated[Seconds, Field(gt=0)] = 3600
    """Time over which actions on it are counted."""

    @model_validator(mode="after")
    def _attempts_run_out(self) -> Self:
        """Attempts that never run out would go on for ever without a person being called."""
        waits = sum(wait_after(tried, self.cooldown) for tried in range(1, self.attempts))
        if waits >= self.attempts_window:
            raise MisplacedError(
                f"with a cooldown of {self.cooldown:g} s so many take {waits:g} s, more than "
                f"attempts_window ({self.attempts_window:g} s): they would never run out",
                "attempts",
            )
        return self

    @property
    @abstractmethod
    def key(self) -> WorkerKey:
        """What journal and metrics know it by."""


class Target(Budget):
    """A worker that may be acted upon. No other ever is."""

    run: Name
    """Its run, as the exporter's file names it."""
    worker: Name
    """Its name there."""
    process: ProcessTarget
    """How it is restarted."""

    @property
    def key(self) -> WorkerKey:
        return WorkerKey(self.run, self.worker)


GPUS = WorkerKey("", "gpus")
"""What journal and metrics know the GPUs of the box by."""


class GpuCleanup(Budget):
    """Lets processes be ended that hold a GPU and belong to no worker: leftovers of a dead run.

    Never one of a worker of the exporter's file, nor one that it protects.
    """

    owners: tuple[Name, ...] = ()
    """Only processes of these accounts; of any account when none is named."""
    command: ChoosingPattern | None = None
    """Only processes in whose command line this regular expression is found."""
    min_age: Seconds = 30
    """Only processes that have run for this long: a run that starts is no leftover."""
    grace: Seconds = 10
    """Seconds between SIGTERM and SIGKILL."""
    memory_back_within: Seconds = 30
    """How long the driver may take to give the memory of ended processes back."""

    @property
    def key(self) -> WorkerKey:
        return GPUS


class Exporter(Section):
    """The exporter of this box: the eyes that confirm trouble before an act and health after it."""

    # So that also where the section is left out, the path is relative to the file.
    model_config = ConfigDict(revalidate_instances="always")

    url: BaseUrl = "http://127.0.0.1:10977"
    """Where it listens."""
    config: LocalPath = Path("exporter.yml")
    """The exporter's own file: the same selectors find the processes to end."""


class Alertmanager(Section):
    """Where it is asked, right before an act, whether the alert still stands."""

    url: BaseUrl = "http://127.0.0.1:9093"
    """Where it listens."""


class Config(Section):
    """A remediator.yml."""

    mode: Literal["observe", "act"] = "observe"
    """`observe` decides and records, and touches nothing."""
    token_file: LocalPath | None = None
    """Bearer tokens of which a webhook must carry one, one per line; re-read when it changes."""
    insecure: bool = False
    """Accept webhooks that carry no token. Anyone who reaches the port may then cause restarts."""
    journal: LocalPath = Path("journal.db")
    """Where everything is written down; a local disk, for a network mount can lose its locks."""
    hold_file: LocalPath = Path("hold")
    """While this file exists nothing is done. `trainwarden-remediator hold` and `resume` make and
    remove it."""
    forget_after: Seconds = 600
    """An alert that Alertmanager has not repeated for this long is not acted upon any more."""
    exporter: Exporter = Exporter()
    """The exporter of this box."""
    alertmanager: Alertmanager = Alertmanager()
    """The Alertmanager that sends the webhooks."""
    targets: tuple[Target, ...] = ()
    """The workers that may be acted upon."""
    gpu_cleanup: GpuCleanup | None = None
    """Whether leftovers that hold a GPU may be ended, and which; none may when not given."""
    playbooks: Mapping[Name, Playbook] = {}
    """What an alert's label `remediation` stands for, beside or instead of what is shipped."""

    @model_validator(mode="after")
    def _targets_are_distinct(self) -> Self:
        seen: set[WorkerKey] = set()
        for index, target in enumerate(self.targets):
            if target.key in seen:
                raise MisplacedError(
                    f"a second target for worker {target.worker} of run {target.run}",
                    "targets",
                    index,
                )
            seen.add(target.key)
        return self

    @model_validator(mode="after")
    def _webhooks_carry_a_token(self) -> Self:
        if self.token_file is None and not self.insecure:
            raise MisplacedError(
                "needed: a file with the bearer token that Alertmanager sends "
                "(or `insecure: true`, which lets anyone who reaches the port cause restarts)",
                "token_file",
            )
        return self

    def playbook(self, name: str) -> Playbook | None:
        return self.playbooks.get(name) or PLAYBOOKS.get(name)

    def target(self, key: WorkerKey) -> Target | None:
        """The worker of that name that may be acted upon."""
        return next((target for target in self.targets if target.key == key), None)

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


def load_setup(path: Path, *, mode: Literal["observe", "act"] | None = None) -> Setup:
    """Read `path` and the exporter's file it names; `mode` takes the place of the file's.

    Raises ConfigError: also for a target that the exporter does not watch, since what cannot be
    seen can be neither confirmed nor verified.
    """
    config = load(path, Config)
    if mode is not None:
        config = config.model_copy(update={"mode": mode})
    setup = Setup(config, watched=load_exporter_config(config.exporter.config))
    workers = setup.selectors
    problems = [
        problem_at(
            path,
            f"run {target.run} has no worker {target.worker} in {config.exporter.config}",
            *("targets", index, "worker"),
        )
        for index, target in enumerate(config.targets)
        if target.key not in workers
    ]
    if problems:
        raise ConfigError(*problems)
    return setup
