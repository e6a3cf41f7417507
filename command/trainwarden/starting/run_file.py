"""The file `trainwarden.yml`: the commands of one run, in the order of their start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from trainwarden.run.start import default_name
from trainwarden_exporter.config_file.argument_lists import (
    ASSIGNMENT,
    check_arguments,
    split_command,
)
from trainwarden_exporter.config_file.examination import all_problems
from trainwarden_exporter.config_file.loader import LocatedError, Section, load
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds, Space
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.inference.addresses import check_ready_address, check_url
from trainwarden_exporter.inference.command_lines import parse_address, parse_server_command
from trainwarden_exporter.processes.roles import check_role
from trainwarden_exporter.runtime.formatting import plural

RUN_FILE = "trainwarden.yml"
INFERENCE, ROLLOUT = "inference", "rollout"
LOOPBACK = "127.0.0.1"

_REMOTE = frozenset(("ssh", "autossh", "srun", "kubectl"))
"""Programs that run their command on another host, as a rule."""


def _arguments(value: object) -> object:
    """Splits a text as a shell does; what else a shell does needs `sh -c`."""
    if isinstance(value, str):
        return split_command(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        check_arguments(value)
    return value


def _address(value: str) -> str:
    if re.fullmatch(r"https?://[^/\s]+\S*|tcp://[^/\s]+:\d+", value) is None:
        raise ValueError("expected http://…, https://… or tcp://HOST:PORT")
    if value.startswith("http"):
        check_url(value)
    return value


Arguments = Annotated[
    tuple[Annotated[str, Field(max_length=10_000)], ...],
    BeforeValidator(_arguments),
    Field(min_length=1),
]


class CommandConfig(Section):
    command: Arguments
    """The command: a list of arguments, or a text, which may begin with variables."""

    role: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(check_role)] | None = (
        None
    )
    """Purpose of the worker, such as trainer or inference."""

    ready: Annotated[str, AfterValidator(_address)] | None = None
    """Address that answers once the command is ready; the next command starts then. Default: that
    in the command of an inference server, of an unknown one its port; others are ready once they
    run."""

    restart: Literal["never", "on-failure", "on-request"] = "on-request"
    """Who may start the command again."""

    memory_limit: Annotated[Space, Field(gt=0)] | None = None
    """Memory of the command and its descendants above which it is restarted."""

    age_limit: Annotated[Seconds, Field(gt=0)] | None = None
    """Age from which on it is restarted if its memory grows."""

    checkpoints: LocalPath | None = None
    """Folder of its checkpoints."""

    finishes: bool | None = None
    """Whether exit status 0 is the end of the run. Default: not that of an inference server."""

    @property
    def has_end(self) -> bool:
        """Whether exit status 0 is no failure."""
        return self.role != INFERENCE if self.finishes is None else self.finishes

    @property
    def ready_address(self) -> str | None:
        """Returns the address to wait for; None if a command is ready once it runs."""
        if self.ready is not None or self.role != INFERENCE:
            return self.ready
        server = parse_server_command(self.command)
        if server is None:
            return parse_address(self.command)
        url = server.url()
        return None if url is None else f"{url}/health"

    @property
    def remote_client(self) -> str:
        """Returns the program that runs the command elsewhere, so that its port is not here; or "".

        Not where an address is known, or a port of this host leads there.
        """
        words = (one for one in self.command if one != "env" and not ASSIGNMENT.fullmatch(one))
        client = Path(next(words, "")).name
        is_here = any(one.startswith("-L") for one in self.command)
        if client not in _REMOTE or is_here or self.ready is not None:
            return ""
        return client if urlsplit(self.ready_address or "").hostname == LOOPBACK else ""

    @property
    def probed_address(self) -> str | None:
        """Returns the address at which the exporter asks an inference server of the user's own.

        None for an address that the exporter cannot ask, such as that of another host.
        """
        if self.ready is None or self.role != INFERENCE:
            return None
        try:
            check_ready_address(self.ready)
        except ValueError:
            return None
        return self.ready


def _expanded(value: object) -> object:
    """A command without settings may stand alone."""
    if not isinstance(value, dict):
        return value
    return {
        name: {"command": one} if isinstance(one, str | list) else one
        for name, one in value.items()
    }


class RunFile(Section):
    name: Name | None = None
    """Name of the run. Default: that of the folder."""

    commands: Annotated[
        Mapping[Name, CommandConfig], BeforeValidator(_expanded), Field(min_length=1)
    ]
    """The commands by the name of their worker, in the order of their start."""

    @field_validator("commands")
    @classmethod
    def _check_addresses(
        cls, commands: Mapping[str, CommandConfig], _: ValidationInfo
    ) -> Mapping[str, CommandConfig]:
        for name, one in commands.items():
            if one.role == INFERENCE and one.ready_address is None:
                raise LocatedError(
                    "required: the command does not show where the server answers", name, "ready"
                )
        return commands


def load_run_file(path: Path) -> tuple[str, Mapping[str, CommandConfig]]:
    """Returns the name of the run and its commands. Raises ConfigError with all mistakes."""
    try:
        found = load(path, RunFile)
    except ConfigError as error:
        raise ConfigError(*all_problems(path, RunFile, error)) from error
    return found.name or default_name([path.parent.absolute().name]), found.commands


def check(file: Path) -> None:
    """Prints that a file is in order. Raises ConfigError with all mistakes."""
    name, commands = load_run_file(file)
    print(f"{file}: ok (run {name}, {plural(len(commands), 'command')})")  # noqa: T201


def finishing(commands: Mapping[str, CommandConfig]) -> list[str]:
    """Returns the names of the commands whose end is that of the run; of all if none has an end.

    Producers of rollouts go on for ever as a rule: they do not count unless they say so, or are all
    that there is.
    """
    ending = [name for name, one in commands.items() if one.has_end]
    trains = [n for n in ending if commands[n].role != ROLLOUT or commands[n].finishes is not None]
    return trains or ending or list(commands)


def options_of(one: CommandConfig) -> list[str]:
    """Returns the options of `trainwarden run` for a command."""
    values: dict[str, Any] = {
        "role": one.role,
        "restart": one.restart,
        "memory-limit": one.memory_limit and f"{one.memory_limit}B",
        "age-limit": one.age_limit and f"{one.age_limit:.0f}s",
        "checkpoints": one.checkpoints,
        "ready": one.probed_address,
    }
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return [*options, "--finishes" if one.has_end else "--no-finishes"]
