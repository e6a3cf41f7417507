"""The account that a worker is started as.

A remediator that runs as root would otherwise start the code of another account as root.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from typing import Self

from trainwarden_exporter.processes.procfs import Process, account_name, read_uid
from trainwarden_exporter.processes.selector import Selector
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.exceptions import ActionError

ROOT = "root"


def find_account(user: str) -> pwd.struct_passwd:
    """Returns the account with that name or number. Raises KeyError."""
    return pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)


def with_account(process: ProcessTarget, selectors: Iterable[Selector]) -> ProcessTarget:
    """Returns `process` with the account of the worker's `match`, if it names none itself.

    Only root starts processes as another account.
    """
    named = {selector.user for selector in selectors}
    user = named.pop() if len(named) == 1 else None
    if process.user is not None or user is None or os.geteuid() != 0:
        return process
    return process.model_copy(update={"user": user})


class StartAccount:
    """Refuses to start a worker as root that belongs to another account."""

    def __init__(self, process: ProcessTarget) -> None:
        self._process = process
        self._seen: int | None = None

    def observe(self, roots: Iterable[Process]) -> None:
        """Notes the account of the worker's live processes."""
        uids = {uid for root in roots if root.alive and (uid := read_uid(root.pid)) is not None}
        if len(uids) == 1:
            (self._seen,) = uids

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the account that `predecessor` observed."""
        self._seen = predecessor._seen

    @property
    def uid(self) -> int:
        """The account that the worker is started as. Raises ActionError if it does not exist."""
        if self._process.user is None:
            return os.geteuid()
        try:
            return find_account(self._process.user).pw_uid
        except KeyError as error:
            raise ActionError(f"there is no account {self._process.user}") from error

    def check(self) -> None:
        """Raises ActionError if the worker of another account would be started as root."""
        if os.geteuid() != 0 or self._process.user is not None:
            return
        if owner := self._foreign_account():
            raise ActionError(
                f"refused to start as root what belongs to {owner}: set `user` of its run in the "
                f"exporter's file (or `process.user: {ROOT}`, if root should start it)"
            )

    def _foreign_account(self) -> str:
        """Returns the last account of the worker, or else the owner of its folder; "" for root.

        A folder whose owner is no account of this host comes from elsewhere, such as a volume in
        a container.
        """
        if self._seen is not None:
            return account_name(self._seen) if self._seen else ""
        try:
            uid = bounded_call(self._process.cwd, self._process.cwd.stat).st_uid
            return pwd.getpwuid(uid).pw_name if uid else ""
        except TimeoutError as error:  # unknown is not root
            raise ActionError(f"{self._process.cwd}: {error.strerror}") from error
        except (KeyError, OSError):
            return ""
