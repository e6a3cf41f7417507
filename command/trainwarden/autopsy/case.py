"""The facts that the causes are judged by, derived from what was read. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from statistics import median

from trainwarden.autopsy import patterns
from trainwarden.autopsy.announced import has_finished
from trainwarden.autopsy.kinds import Kind, merge
from trainwarden.autopsy.log_formats import is_copy
from trainwarden.autopsy.material import CheckpointFinding, Material
from trainwarden.autopsy.model import Attempt, LogReading, Tally, ValueRange
from trainwarden.autopsy.repeats import SameStep, StartLoop, loop_of, same_step_of
from trainwarden.autopsy.resume_point import ResumePoint, find_resume_point
from trainwarden_exporter.frameworks.base import Phase

ALIVE_SECONDS = 300.0
"""A run that wrote this recently may still be active."""
COPIED_SECONDS = 86_400.0
BEFORE_END_SECONDS = 600.0
"""Lines of other parts count if they are at most this much older than the last progress."""
WATCHDOG_SILENCE_SECONDS = 600.0
MIN_STEPS_AHEAD = 100
"""Steps of a checkpoint beyond the last logged one: fewer, a run makes between two lines."""
MIN_NOT_FINITE = 3
"""Values of a loss that are not finite, for more than one bad batch."""

_SCRIPT = re.compile(r"can't open file '([^']+)'")


class Case:
    """One run. All properties are derived from the material."""

    def __init__(self, material: Material) -> None:
        self.material = material

    @property
    def logs(self) -> Sequence[LogReading]:
        return self.material.logs

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts with progress in order of time, without those of copies."""
        found: list[Attempt] = []
        known: set[tuple[int | None, int | None, int]] = set()
        for log in self.logs:
            for attempt in log.attempts:
                key = (attempt.first_step, attempt.last_step, round(attempt.progress_at or 0))
                # a bar without times that ended twice in the same way is that of another rank
                is_rank = attempt.finished and attempt.progress_at is None
                is_known = (is_copy(log.log) or is_rank) and key in known
                if attempt.has_progress and not is_known:
                    known.add(key)
                    found.append(attempt)
        ends = {log.name: self.end_of(log) for log in self.logs}

        def moment(attempt: Attempt) -> tuple[float, int]:
            at = attempt.progress_at or attempt.ended_at or ends[attempt.file]
            return (at or 0.0, attempt.progress_order)

        return tuple(sorted(found, key=moment))

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @cached_property
    def parallel(self) -> tuple[Attempt, ...]:
        """The latest attempts of all files that were active at the same time as the latest one."""
        latest = self.latest
        if latest is None:
            return ()
        since = latest.began_at
        last_of = {attempt.file: attempt for attempt in self.attempts}
        return tuple(
            one
            for one in last_of.values()
            if one is latest
            or (since is not None and one.progress_at is not None and one.progress_at >= since)
        )

    @cached_property
    def last_progress_at(self) -> float | None:
        times = [one.progress_at for one in self.attempts if one.progress_at is not None]
        return max(times, default=None)

    @cached_property
    def _copied(self) -> bool:
        """Whether the times of the files are those of a copy: long after their last lines."""
        gaps = [log.log.modified - log.last_at for log in self.logs if log.last_at is not None]
        return bool(gaps) and median(gaps) > COPIED_SECONDS

    def end_of(self, log: LogReading) -> float | None:
        """Returns the time of the last line of `log`, else the last change of the file."""
        if log.last_at is None and not self._copied:
            return log.log.modified
        return log.last_at

    @cached_property
    def last_log(self) -> tuple[float, LogReading] | None:
        """The log of the run's own that shows the last sign of life, and its time.

        Where lines without a time are the last ones, that is the last change of the file; of a copy
        it would be the time of the copy.
        """
        found: list[tuple[float, LogReading]] = []
        for log in self.logs:
            at = self.end_of(log)
            if at is None or log.log.source not in ("log", "watchdog"):
                continue
            undated = log.ends_undated and not self._copied
            found.append((max(at, log.log.modified) if undated else at, log))
        return max(found, key=lambda one: (one[0], one[1].name), default=None)

    @property
    def last_sign(self) -> tuple[float, str] | None:
        """The last sign of life in the run's own logs, and the file."""
        return None if self.last_log is None else (self.last_log[0], self.last_log[1].name)

    @property
    def last_log_lines(self) -> tuple[str, tuple[str, ...]]:
        """The log with the last progress, else the one with the last sign, and its last lines."""
        shown = [log for log in self.logs if self.latest and log.name == self.latest.file]
        shown += [] if self.last_log is None else [self.last_log[1]]
        return (shown[0].name, shown[0].last_lines) if shown else ("", ())

    @property
    def last_line(self) -> str:
        return next(reversed(self.last_log_lines[1]), "")

    @cached_property
    def first_sign_at(self) -> float | None:
        return min((log.first_at for log in self.logs if log.first_at is not None), default=None)

    @property
    def finished(self) -> bool:
        logged = bool(self.parallel) and all(one.finished for one in self.parallel)
        announced = has_finished(self.material.announced)
        return logged if announced is None else announced

    @property
    def not_started(self) -> str:
        """Why no command of the run could do anything."""
        found = self.late("environment_missing")
        script = found and not self.attempts and _SCRIPT.search(found.last.text)
        logged = f"The script {script[1]} was not found" if script else ""
        return next((one.not_started for one in self.material.announced if one.not_started), logged)

    def has_finished(self, attempt: Attempt) -> bool:
        """Whether an attempt finished, as it logged or, for the last ones, as was recorded."""
        return attempt.finished or (self.finished and attempt in self.parallel)

    @property
    def may_be_active(self) -> bool:
        newest = self.material.files.newest_change
        if self.material.announced or newest is None:
            return any(one.alive for one in self.material.announced)
        return self.material.now - newest < ALIVE_SECONDS

    @cached_property
    def last_step(self) -> int | None:
        steps = [one.last_step for one in self.parallel if one.last_step is not None]
        return max(steps, default=None)

    def tallies(self, kinds: Collection[str]) -> Iterator[Tally]:
        for log in self.logs:
            for kind in kinds:
                if (tally := log.tallies.get(kind)) is not None:
                    yield tally

    def find(self, *kinds: str) -> Kind | None:
        """Returns all lines of `kinds`, in the whole history."""
        return merge(self.tallies(kinds))

    def late(self, *kinds: str) -> Kind | None:
        """Returns the lines of `kinds` that no progress followed."""
        return merge(tally for tally in self._late() if tally.kind in kinds)

    def _late(self) -> Iterator[Tally]:
        ends = {attempt.file: attempt for attempt in self.parallel}
        latest_files = {attempt.file for attempt in self.attempts}
        for log in self.logs:
            if log.name in ends:
                yield from ends[log.name].after.values()
            elif log.name in latest_files and log.log.source == "log":
                continue  # an earlier attempt of the run
            else:
                yield from (one for one in log.tallies.values() if self._is_late(one, log))

    def _is_late(self, tally: Tally, log: LogReading) -> bool:
        if self.last_progress_at is None:
            return True
        at = tally.last.at
        if at is None:
            at = self.end_of(log)
            return at is None or at >= self.last_progress_at - BEFORE_END_SECONDS
        return at >= self.last_progress_at - BEFORE_END_SECONDS

    def late_in(self, role: str, *kinds: str) -> Kind | None:
        """Returns the late lines of `kinds` in the logs of one part."""
        files = {log.name for log in self.logs if log.role == role}
        return merge(
            tally for tally in self._late() if tally.kind in kinds and tally.last.file in files
        )

    @cached_property
    def error_kinds(self) -> frozenset[str]:
        """The kinds of lines that count as errors."""
        return patterns.ERRORS | {one.name for one in self.material.framework.lines if one.error}

    @cached_property
    def errors(self) -> tuple[Kind, ...]:
        """All errors by kind, the most frequent first, and a loss that was not finite."""
        kinds = {kind for log in self.logs for kind in log.tallies}
        found = [one for kind in kinds & self.error_kinds if (one := self.find(kind)) is not None]
        bad = self.find(patterns.NOT_FINITE)
        found += [bad] if bad is not None and bad.count >= MIN_NOT_FINITE else []
        return tuple(sorted(found, key=lambda kind: (-kind.count, kind.name)))

    @cached_property
    def first_error(self) -> Tally | None:
        """The first error after the last progress; a traceback only without a better one."""
        found = [tally for tally in self._late() if tally.kind in self.error_kinds]
        named = [tally for tally in found if tally.kind != "exception"] or found
        return min(
            named,
            key=lambda tally: (
                self.material.now if tally.first.at is None else tally.first.at,
                tally.first.order,
            ),
            default=None,
        )

    @cached_property
    def loop(self) -> StartLoop | None:
        """The longest row of starts without progress."""
        loops = [loop for log in self.logs if (loop := loop_of(log)) is not None]
        return max(loops, key=lambda loop: loop.count, default=None)

    @cached_property
    def same_step(self) -> SameStep | None:
        """At least three attempts, and more than half, that ended at about one step."""
        return same_step_of(
            [
                one.last_step
                for one in self.attempts
                if one.last_step is not None and not self.has_finished(one)
            ]
        )

    @cached_property
    def mixed_checkpoints(self) -> tuple[str, ...]:
        """The folders of checkpoints, if several runs have left them.

        One folder is far ahead of the last step of the logs: which of them belongs to the logs is
        not known, unless `trainwarden run` was given its folder.
        """
        if any(one.checkpoints is not None for one in self.material.announced):
            return ()
        steps = {
            folder: one.step(newest)
            for one in self.material.checkpoints
            for folder, result in one.snapshot.results.items()
            if (newest := result.newest) is not None
        }
        ahead = [step for step in steps.values() if step is not None and self._is_ahead(step)]
        several = self.material.framework.name == "generic" and len(steps) > 1
        return tuple(steps) if ahead and (several or self.material.other_runs) else ()

    def _is_ahead(self, step: int) -> bool:
        return self.last_step is not None and step > self.last_step + MIN_STEPS_AHEAD

    @cached_property
    def checkpoint(self) -> CheckpointFinding | None:
        """The kind of checkpoint from which a resume begins: with a record, else the newest.

        None where checkpoints of several runs are mixed.
        """
        found = [
            one
            for one in self.material.checkpoints
            if one.snapshot.result.newest is not None or one.snapshot.recovery is not None
            if not self.mixed_checkpoints
        ]
        return max(
            found,
            key=lambda one: (
                one.snapshot.recovery is not None,
                0.0
                if one.snapshot.result.newest is None
                else one.snapshot.result.newest.completed_at,
            ),
            default=None,
        )

    @cached_property
    def resume(self) -> ResumePoint | None:
        """What a resume begins from; None without any checkpoint."""
        found = self.checkpoint
        return (
            None
            if found is None
            else find_resume_point(found, self.finite_until, diverged=self.not_finite is not None)
        )

    @property
    def checkpoint_step(self) -> int | None:
        return None if self.resume is None else self.resume.step

    @cached_property
    def highest_memory(self) -> tuple[float, LogReading] | None:
        """The highest share of memory in use that a log shows, and the log."""
        found = []
        for log in self.logs:
            values = log.values
            if (percent := values.get("memory_percent")) is not None:
                found.append((percent.high / 100, log))
            elif (used := values.get("memory_used")) is not None and "memory_total" in values:
                total = values["memory_total"].high
                if total > 0:
                    found.append((min(used.high / total, 1.0), log))
        return max(found, key=lambda one: one[0], default=None)

    @cached_property
    def silent_watchdogs(self) -> tuple[tuple[LogReading, float], ...]:
        """Logs of watchdogs that ended before the run did, and how many seconds before."""
        ends = [self.end_of(log) for log in self.logs if log.log.source == "log"]
        last = max((at for at in ends if at is not None), default=None)
        if last is None:
            return ()
        return tuple(
            (log, last - at)
            for log in self.logs
            if log.log.source == "watchdog"
            and (at := self.end_of(log)) is not None
            and last - at > WATCHDOG_SILENCE_SECONDS
        )

    @cached_property
    def boots(self) -> tuple[float | None, ...]:
        """Boots in the logs of the system; several lines of one boot count once."""
        times = sorted(at for tally in self.tallies(("boot",)) for at in tally.times)
        found: list[float | None] = []
        for at in times:
            if not found or found[-1] is None or at - found[-1] > 60:  # noqa: PLR2004 - lines of one boot
                found.append(at)
        undated = sum(tally.count - len(tally.times) for tally in self.tallies(("boot",)))
        return (*found, *([None] * undated if not found else ()))

    @cached_property
    def waiting(self) -> Attempt | None:
        """The attempt that ended waiting for a batch."""
        return next(
            (one for one in self.parallel if one.phase is Phase.WAITING_FOR_ROLLOUTS), None
        ) or next(
            (
                attempt
                for log in self.logs
                for attempt in log.attempts[-1:]
                if not self.parallel and attempt.phase is Phase.WAITING_FOR_ROLLOUTS
            ),
            None,
        )

    @cached_property
    def not_finite(self) -> tuple[str, ValueRange, LogReading] | None:
        """A loss that is not finite at the end: its name, its numbers, and the log."""
        ends = {attempt.file for attempt in self.parallel}
        earlier = {attempt.file for attempt in self.attempts} - ends
        found = (
            (name, values, log)
            for log in self.logs
            if log.name not in earlier
            for name, values in log.values.items()
            if name.endswith("loss") and values.not_finite >= MIN_NOT_FINITE
        )
        return next(found, None)

    @property
    def finite_until(self) -> int | None:
        """The last step with a finite loss, if the loss is not finite at the end."""
        return None if self.not_finite is None else self.not_finite[1].finite_until

    @cached_property
    def part_ends(self) -> tuple[LogReading, ...]:
        """Logs of inference servers and orchestrators that end before the trainer's."""
        trainers = [self.end_of(log) for log in self.logs if log.role in ("trainer", "")]
        last = max((at for at in trainers if at is not None), default=None)
        return tuple(
            log
            for log in self.logs
            if last is not None
            and log.role in ("inference", "orchestrator", "rollout")
            and log.last_at is not None
            and last - log.last_at > ALIVE_SECONDS
        )
