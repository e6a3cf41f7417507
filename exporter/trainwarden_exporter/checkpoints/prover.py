"""Proves the checkpoints of a run in the background, a little at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from trainwarden_exporter.checkpoints.damages import DamageKind
from trainwarden_exporter.checkpoints.entry_check import (
    EntryCheck,
    EntryRecord,
    Files,
    stat_files,
)
from trainwarden_exporter.checkpoints.last_finite import LastFinite
from trainwarden_exporter.checkpoints.paced_reader import ReadRate, lower_priority
from trainwarden_exporter.checkpoints.proofs import ProofSnapshot, build_snapshot, tracker_rule
from trainwarden_exporter.checkpoints.scanner import CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.runtime.state_file import StateFile
from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_exporter.step_dirs.filesystem import FileSystem, is_denied, is_gone
from trainwarden_exporter.step_dirs.names import counts_epochs
from trainwarden_exporter.step_dirs.throttle import Throttle

INTERVAL = 1.0
"""Seconds between two slices of work."""
SLICE_SECONDS = 5.0
"""Length of a slice; its result is shown after it."""
QUIET_SECONDS = 15.0
"""Seconds without a write after which a complete checkpoint is checked."""
CHANGED_QUIET_SECONDS = 40.0
"""The same for a checkpoint that is written again: its save may pause between two files."""
STAT_SECONDS = 10.0
"""Seconds between two looks whether a file of a proved checkpoint has changed."""
REREAD_SECONDS = 86400.0
"""Seconds after which a proved checkpoint is read again: a disk may have lost bits meanwhile."""
MAX_PROVED = 8
"""Number of newest checkpoints that are proved."""
MAX_SAVE_PAUSE_SECONDS = 120.0
"""How long a save can delay a check: a run that saves all the time must be checked too."""
MAX_SAVED_FILES = 2000
"""Number of files up to which the proof of a checkpoint survives a restart of the exporter."""

HOST_RATE = ReadRate()
"""The rate of all provers of this process."""

Records = dict[str, EntryRecord]
Scan = Callable[[], CheckpointSnapshot | None]


def open_proofs(state_folder: Path | None, spec: CheckpointSpec) -> StateFile[Records]:
    """Opens the file with the proofs of one kind of checkpoint."""
    name = f"{'copies' if spec.is_copy else 'proofs'}-{'-'.join(spec.labels)}.json"
    path = None if state_folder is None else state_folder / name
    return StateFile(path, dict[str, EntryRecord], empty={})


class CheckpointProver:
    """Poll function of a poller: each call is one slice of work. For one thread."""

    def __init__(
        self,
        spec: CheckpointSpec,
        scan: Scan,
        *,
        state: StateFile[Records] | None = None,
        rate: ReadRate = HOST_RATE,
        last_finite: LastFinite | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.idle = False
        """Whether the last slice found nothing to check."""
        self._layout = spec.layout
        self._last_finite = last_finite
        self._account = spec.location.account
        self._scan = scan
        self._filesystem = FileSystem()
        self._rate = rate
        self._now, self._clock = now, clock
        self._throttle = Throttle()
        self._throttle.disabled = rate.unlimited
        self._state = open_proofs(None, spec) if state is None else state
        # what counts as missing is for this version to say: it is no reading of bytes
        self._records: Records = {
            path: one
            for path, one in self._state.value.items()
            if all(damage.kind is not DamageKind.MISSING for damage in one.damages)
        }
        self._check: EntryCheck | None = None
        self._steps: Iterator[float] = iter(())
        self._paused_seconds = 0.0
        self._statted: dict[str, float] = {}
        self._rotation: list[str] = []
        self._thread_prepared = False

    def __call__(self) -> ProofSnapshot:
        """Works for a slice of time. Raises OSError if a checkpoint cannot be read."""
        if not (self._thread_prepared or self._rate.unlimited):
            lower_priority()  # of the thread that runs nothing else
            self._thread_prepared = True
        with reading_for(self._account):
            return self._prove()

    def _prove(self) -> ProofSnapshot:
        if (scanned := self._scan()) is None:
            return ProofSnapshot()
        listed = self._candidates(scanned)
        paths = {path for path, _ in listed}
        self._records = {path: one for path, one in self._records.items() if path in paths}
        end = self._clock() + SLICE_SECONDS
        self.idle = False
        while self._clock() < end and self._work(scanned, listed):
            pass
        self._state.save(
            {k: one for k, one in self._records.items() if len(one.files) <= MAX_SAVED_FILES}
        )
        return build_snapshot(
            self._layout, scanned.results, self._records, self._trackers(scanned), self._now()
        )

    def prove_all(self, seconds: float = math.inf) -> ProofSnapshot:
        """Works until no checkpoint is left that can be checked now, or the time is over.

        Raises OSError.
        """
        end = self._clock() + seconds
        found = self()
        while not self.idle and self._clock() < end:
            found = self()
        return found

    def _work(self, scanned: CheckpointSnapshot, listed: list[tuple[str, StepDir]]) -> bool:
        """Does a step of work; returns whether there may be more."""
        if self._check is None:
            self._check = self._choose(listed)
            if self._check is None:
                self.idle = True
                return False
            self._steps, self._paused_seconds = self._check.steps(), 0.0
        if self._is_saving(scanned) and self._paused_seconds < MAX_SAVE_PAUSE_SECONDS:
            self._paused_seconds += INTERVAL
            return False
        try:
            pause = next(self._steps, None)
        except OSError as error:
            self._check = None
            if is_gone(error):
                return True
            raise
        except BaseException:
            # An exhausted generator would look like a check without damages.
            self._check = None
            raise
        if pause is None:
            self._finish()
            return True
        self._throttle.pause_if_due()
        if pause:
            time.sleep(pause)
        return True

    def _finish(self) -> None:
        check, self._check = self._check, None
        assert check is not None  # noqa: S101 - its steps have just ended
        with suppress(OSError):
            files = stat_files(self._filesystem, check.path)
            if files is not None and _same_stamps(files, check.files):
                self._records[check.path] = check.record

    def _choose(self, listed: list[tuple[str, StepDir]]) -> EntryCheck | None:
        """Returns the next check: the newest, then new ones, then the others in turn."""
        now = self._now()
        complete = {path: one.complete for path, one in self._to_prove(listed)}
        for path, is_complete in self._order(complete):
            record = self._records.get(path)
            if self._clock() - self._statted.get(path, -STAT_SECONDS) < STAT_SECONDS:
                continue
            self._statted[path] = self._clock()
            try:
                files = stat_files(self._filesystem, path)
            except OSError as error:
                if is_gone(error) or is_denied(error):
                    continue
                raise
            quiet = QUIET_SECONDS if is_complete else CHANGED_QUIET_SECONDS
            if not files or now - _last_write(files) < quiet:
                continue
            is_known = record is not None and _same_stamps(files, record.files)
            if is_known and record is not None and now - record.checked_at < REREAD_SECONDS:
                continue
            others = (one for other, one in self._newest_records(listed) if other != path)
            reference = next((one for one in others if one.proved), None)
            return EntryCheck(
                path, files, self._rate, self._throttle.pause_if_due, record, reference
            )
        return None

    def _candidates(self, scanned: CheckpointSnapshot) -> list[tuple[str, StepDir]]:
        """Returns the entries to check with their paths, newest first.

        An entry that was proved and has changed counts as incomplete until its save is renewed.
        """
        found = [
            (path, one)
            for folder, result in scanned.results.items()
            for one in (*result.complete, *result.incomplete)
            if one.complete or f"{folder}/{one.name.text}" in self._records
            for path in (f"{folder}/{one.name.text}",)
        ]
        return sorted(found, key=lambda item: item[1].sort_key, reverse=True)

    def _to_prove(self, listed: list[tuple[str, StepDir]]) -> list[tuple[str, StepDir]]:
        """Returns the newest ones, and those from before the last finite loss, if given."""
        if (last := self._last_finite) is None:
            return listed[:MAX_PROVED]
        offset = self._layout.step_offset
        early = [
            (path, one)
            for path, one in listed
            if last.covers(None if counts_epochs(path) else one.step(offset), one.changed_at)
        ]
        return [*listed[:MAX_PROVED], *early[:MAX_PROVED]]

    def _order(self, listed: Mapping[str, bool]) -> Iterator[tuple[str, bool]]:
        paths = list(listed)
        self._rotation = [one for one in self._rotation if one in listed] or paths
        turn, self._rotation = self._rotation[:1], self._rotation[1:]
        unknown = [path for path in paths if path not in self._records]
        yield from ((path, listed[path]) for path in (*paths[:1], *unknown, *turn))

    def _newest_records(
        self, listed: list[tuple[str, StepDir]]
    ) -> Iterator[tuple[str, EntryRecord]]:
        for path, _ in listed:
            if path in self._records:
                yield path, self._records[path]

    def _is_saving(self, scanned: CheckpointSnapshot) -> bool:
        in_progress = scanned.in_progress
        return in_progress is not None and self._now() - in_progress[0].changed_at < QUIET_SECONDS

    def _trackers(self, scanned: CheckpointSnapshot) -> Mapping[str, str]:
        rule = tracker_rule(self._layout.completeness)
        texts = {}
        if rule is not None:
            for folder in scanned.results:
                with suppress(OSError):
                    texts[folder] = self._filesystem.text(f"{folder}/{rule.file}")
        return texts


def _same_stamps(files: Files, others: Files) -> bool:
    return files.keys() == others.keys() and all(
        file.same_stamp(others[name]) for name, file in files.items()
    )


def _last_write(files: Files) -> float:
    return max(file.modified_ns for file in files.values()) / 1e9
