"""Renames damaged checkpoints that a resume would take, so that the framework ignores them.

It deletes no file, and a rename within the folder undoes it. For frameworks that resume from the
highest number alone: a tracker file or a recovery record would name what is gone.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from trainwarden_exporter.checkpoints.proofs import tracker_rule
from trainwarden_exporter.checkpoints.prover import QUIET_SECONDS
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.frameworks.base import CheckpointLayout
from trainwarden_exporter.frameworks.completeness_rules import ListedRule, rules_in
from trainwarden_exporter.runtime.safe_open import open_handle
from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_remediator.actions.base import RecordStep

log = logging.getLogger(__name__)

PREFIX = ".damaged."
MAX_RENAMES = 4
"""Checkpoints that are renamed before one start: more damages have another cause."""

NextTaken = tuple[Path, StepDir]


def ignored_name(name: str) -> str:
    """Returns a hidden name in which no pattern of `name` matches; `unquote` reverts the rest."""
    escaped = re.sub(r"[-_.~=]", lambda match: f"%{ord(match[0]):02X}", quote(name, safe=""))
    return PREFIX + escaped


def takes_highest(layout: CheckpointLayout) -> bool:
    """Whether the framework chooses by the names alone."""
    is_listed = any(isinstance(rule, ListedRule) for rule in rules_in(layout.completeness))
    return tracker_rule(layout.completeness) is None and layout.recovery is None and not is_listed


class DamagedCheckpoints:
    """The checkpoints of one run that its next start must not take. Blocks.

    Of several kinds, the first is the one from which the run resumes.
    """

    def __init__(self, specs: Sequence[CheckpointSpec]) -> None:
        self._specs = [spec for spec in specs[:1] if takes_highest(spec.layout)]

    def set_aside(
        self, proved: str, damaged: Collection[str], account: int, record_step: RecordStep
    ) -> list[str]:
        """Renames what a resume would take until that is sound; returns what was renamed.

        `proved` and `damaged` are the paths that the exporter shows; without a proved checkpoint it
        renames none, because the run would begin from its first step. `account` is the owner
        of the run's files (its uid). Its trainer must be dead. Raises JournalError, before the
        rename that could not be recorded.
        """
        done: list[str] = []
        while proved and len(done) < MAX_RENAMES:
            path = next(filter(None, map(self._next_damaged(proved, damaged), self._specs)), None)
            if path is None or not _rename(path, account, record_step):
                break
            done.append(str(path))
        return done

    def _next_damaged(
        self, proved: str, damaged: Collection[str]
    ) -> Callable[[CheckpointSpec], Path | None]:
        def find(spec: CheckpointSpec) -> Path | None:
            for path, entry in _taken(spec, time.time):
                if str(path) == proved:
                    continue
                quiet = time.time() - entry.changed_at >= QUIET_SECONDS
                half_written = not entry.complete and spec.layout.resumes_incomplete is not False
                if quiet and (half_written or (entry.complete and str(path) in damaged)):
                    return path
            return None

        return find


def _taken(spec: CheckpointSpec, now: Callable[[], float]) -> Iterator[NextTaken]:
    """Yields what a resume takes in each folder: the highest name that is no temporary one."""
    # its trainer is dead: nothing has to settle any more
    settled = spec.layout.completeness.settle_seconds
    try:
        results = CheckpointScanner(spec, now=lambda: now() + settled)().results
    except OSError as error:
        log.warning("checkpoints not read", extra={"run": spec.run, "error": str(error)})
        return
    for folder, result in results.items():
        if result.unexamined_count:
            continue
        entries = [one for one in (*result.complete, *result.incomplete) if not one.name.partial]
        if spec.layout.resumes_incomplete is False:
            entries = [one for one in entries if one.complete]
        if entries:
            taken = max(entries, key=lambda one: one.name.sort_key)
            yield Path(folder) / taken.name.text, taken


def _rename(path: Path, account: int, record_step: RecordStep) -> bool:
    """Renames a checkpoint of `account` within its folder; returns whether it did."""
    new = ignored_name(path.name)
    try:
        folder = open_handle(path.parent)
    except OSError as error:
        log.warning("checkpoint not renamed", extra={"path": str(path), "error": str(error)})
        return False
    try:
        entry = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        is_own = entry.st_uid == account == os.fstat(folder).st_uid
        is_plain = stat.S_ISDIR(entry.st_mode) or stat.S_ISREG(entry.st_mode)
        if not (is_own and is_plain) or _exists(new, folder):
            log.warning("checkpoint not renamed", extra={"path": str(path), "owned": is_own})
            return False
        record_step("set_aside", path=str(path), name=new)
        os.rename(path.name, new, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        log.warning("checkpoint not renamed", extra={"path": str(path), "error": str(error)})
        return False
    finally:
        os.close(folder)
    log.warning("damaged checkpoint renamed", extra={"path": str(path), "new_name": new})
    return True


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
