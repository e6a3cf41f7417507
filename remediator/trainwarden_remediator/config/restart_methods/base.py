"""Base class and common fields of the restart methods; protected names."""

from __future__ import annotations

import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from trainwarden_exporter.config_file.argument_lists import check_arguments
from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import Seconds
from trainwarden_exporter.processes.procfs import read_owner


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("an argument must not contain a NUL character")
    return text


Argument = Annotated[str, AfterValidator(_argument)]
"""One argument of a command line; never interpreted by a shell."""

Arguments = Annotated[tuple[Argument, ...], Field(min_length=1), AfterValidator(check_arguments)]


class RestartMethod(Section):
    """How a target is stopped and started."""

    grace: Seconds
    """Seconds that the worker has to stop before it is killed."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What this method restarts, in a few words, for the status page."""

    def restarts_same(self, other: RestartMethod) -> bool:
        """Whether both methods restart the same thing; two targets must not."""
        return type(self) is type(other) and self.summary == other.summary

    def warnings(self) -> Iterable[str]:
        """Returns settings that will not work on this host, each with its field; reads the disk."""
        return ()


def is_socket(path: Path) -> bool:
    """Whether `path` is a socket; False if it is not accessible."""
    try:
        return path.is_socket()
    except OSError:
        return False


ACCOUNT_PATH = "/usr/local/bin:/usr/bin:/bin"
"""PATH of a process that is started as another account; the remediator's names its own folders."""


def command_warnings(
    name: str, command: Sequence[str], cwd: Path, *, user: str | None
) -> Iterator[str]:
    """Yields why the `command` of the field `name` cannot run as the account `user`."""
    own = user is None or user == read_owner(os.getpid())
    path = None if own else ACCOUNT_PATH
    restart_method, _, _ = name.partition(".")
    if not cwd.is_dir():
        yield f"{restart_method}.cwd: no such directory: {cwd}"
    elif shutil.which(cwd / command[0]) is None and (
        "/" in command[0] or shutil.which(command[0], path=path) is None
    ):
        yield f"{name}: no such program: {command[0]}"


class SaveRequest(Section):
    """Requests a checkpoint from a worker before its restart, by a signal or by a command."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"within": "timeout"}

    signal: Literal["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGALRM"] | None = None
    """The signal to send to the worker's root processes, not to their children. A process without a
    handler for it is not signalled: the signal would terminate it."""
    command: Arguments | None = None
    """The command to run instead, as a list of arguments without a shell."""
    timeout: Annotated[Seconds, Field(gt=0)] = 120
    """How long to wait for a newer complete checkpoint; then the worker is restarted anyway."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.signal is None) == (self.command is None):
            raise ValueError("set either signal or command")
        return self


_MONITORING = (
    r"trainwarden-?(exporter|remediator|prometheus|alertmanager|grafana)"
    r"|prometheus(-.*exporter)?|alertmanager|exporter|remediator"
)

_HOST_SERVICES = (
    r"init|systemd(-.*)?|dbus(-.*)?|polkit|udev|getty|user|sshd?|supervisord?|docker(d)?|containerd"
    r"|podman|crio|kubelet|kube-.*|slurmd|slurmctld|slurmdbd|munge|network(ing|manager)?|cron"
    r"|nvidia-(persistenced|fabricmanager)"
)

# Also as Docker Compose names containers: `box-prometheus-1`, `box_prometheus_1`.
_PROTECTED = re.compile(
    rf"({_MONITORING}|{_HOST_SERVICES})|(.+[-_])?({_MONITORING})[-_]\d+|trainwarden-supervisor"
)


def refuse_protected(name: str) -> str:
    """Returns the `name` of a unit, container or program. Raises ValueError if it is protected."""
    stem = name.lower().removesuffix(".service").partition("@")[0].rpartition(":")[2]
    if _PROTECTED.fullmatch(stem):
        raise ValueError(f"{name} is protected: the host or its monitoring depends on it")
    return name
