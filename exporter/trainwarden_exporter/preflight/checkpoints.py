"""The checkpoints of a run with their proofs: before a start, and as a list for an operator."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from pathlib import Path

from trainwarden_exporter.checkpoints.last_finite import LastFinite
from trainwarden_exporter.checkpoints.paced_reader import UnlimitedRate
from trainwarden_exporter.checkpoints.proofs import (
    CheckpointProof,
    ProofSnapshot,
    ProofState,
    provable,
)
from trainwarden_exporter.checkpoints.prover import (
    MAX_PROVED,
    QUIET_SECONDS,
    CheckpointProver,
    open_proofs,
)
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.logs.state_store import LogStateStore
from trainwarden_exporter.preflight.report import Finding, PreflightContext
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs, copy_specs, log_specs
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.runtime.formatting import format_size, plural, printable
from trainwarden_exporter.runtime.state_file import StateFile
from trainwarden_exporter.step_dirs.listing import MAX_ENTRIES
from trainwarden_exporter.step_dirs.result import MAX_LISTED

CHECK_SECONDS = 10.0
"""How long preflight reads checkpoints; what the exporter has proved is known without reading."""
TIMEOUT_SECONDS = 30.0
MAX_POLLS = 10
"""Reads of a log, each of at most two seconds."""
MAX_SCANS = 8
"""Scans of a folder, each of a bounded number of entries."""


SETTLING = "settling"
"""The word for an incomplete checkpoint that was just written, as its layout has no proof."""
AFTER_FINITE = "saved after the last step with a finite loss"
NOT_KNOWN_SINCE = (
    "since when is not known, nor which checkpoint is from before: the first line with such a loss"
    " in the log shows it"
)

_MEANINGS: Mapping[ProofState, str] = {
    "proved": "its content was read, and is sound, as far as its format shows",
    "unproved": f"it was not read: the newest {MAX_PROVED} are, each {QUIET_SECONDS:.0f} s after"
    f" its last write, and once the loss is NaN or infinite, the newest {MAX_PROVED} from before;"
    " or no file of it can hold weights, or its format does not show whether it was cut short, and"
    " no other one shows how large a whole one is",
    "unreadable": "its content cannot be read",
    "incomplete": "its save is not over, or was interrupted",
}
"""The states of checkpoints that need a word; a damage has a line of its own."""


@dataclass(frozen=True, slots=True)
class CheckpointList:
    """The checkpoints of one kind."""

    spec: CheckpointSpec
    proofs: ProofSnapshot
    last_finite: LastFinite | None = None
    """Until when the loss was finite, if the last one is not."""
    left_out: int = 0
    """Number of older checkpoints that were not read."""
    seen_at: float = 0.0
    """When they were listed (Unix seconds)."""

    def is_settling(self, proof: CheckpointProof) -> bool:
        """Whether it may still become complete by only staying as it is."""
        seconds = self.spec.layout.completeness.settle_seconds
        age = self.seen_at - proof.step_dir.changed_at
        return proof.state == "incomplete" and age < seconds

    def _word(self, proof: CheckpointProof) -> str:
        return SETTLING if self.is_settling(proof) else proof.state

    def is_late(self, proof: CheckpointProof) -> bool:
        """Whether it was saved after the loss became NaN or infinite."""
        return self._is_early(proof) is False

    def _is_early(self, proof: CheckpointProof) -> bool | None:
        """Whether it was saved before the loss became so, if ever; None if unknown."""
        last = self.last_finite
        return last is None or last.covers(proof.run_step, proof.step_dir.changed_at)

    @property
    def unclear(self) -> bool:
        """Whether it is not known of a proved checkpoint whether it is from before such a loss."""
        return any(
            one.state == "proved" and self._is_early(one) is None for one in self.proofs.checkpoints
        )

    @property
    def newest_good(self) -> CheckpointProof | None:
        """The newest proved checkpoint that is known to be from before such a loss.

        None where that is not known of each: an epoch, for example, does not show it.
        """
        if self.unclear:
            return None
        found = [one for one in self.proofs.checkpoints if one.state == "proved"]
        good = [one for one in found if self._is_early(one)]
        newest = self.proofs.newest_proved
        if newest is None or self._is_early(newest):
            return newest
        return max(good, key=lambda one: (one.step or 0, one.step_dir.changed_at), default=None)

    def lines(self) -> Iterator[str]:
        """Yields a table: a line for each checkpoint, and one for each kind of its damages."""
        run, kind = self.spec.labels
        if self.spec.is_copy:
            kind += " (copies)"
        if not self.proofs.checkpoints:
            folder = self.spec.named_folder
            missing = folder and not Path(folder).exists()
            why = f": {printable(folder)} does not exist" if missing else ""
            yield f"run {run}, {kind}: no checkpoints{why}"
            return
        folders = dict.fromkeys(str(Path(one.path).parent) for one in self.proofs.checkpoints)
        yield f"run {run}, {kind}: {', '.join(map(printable, folders))}"
        yield f"  provable: {provable(self.spec.layout)}"
        yield from self._table()
        if self.left_out:
            yield f"  and {self.left_out} more, which were not read"
        for state, meaning in _MEANINGS.items():
            if any(self._word(one) == state for one in self.proofs.checkpoints):
                yield f"  {state}: {meaning}"
        if any(map(self.is_settling, self.proofs.checkpoints)):
            seconds = f"{self.spec.layout.completeness.settle_seconds:.0f} s"
            yield f"  {SETTLING}: whether its save is over is known {seconds} after its last write"
        problem = self.proofs.resume_problem
        if problem:
            yield f"  A resume would take a damaged checkpoint: {printable(problem)}"
        yield f"  Newest proved checkpoint: {_name(self.proofs.newest_proved)}"
        if (last := self.last_finite) == LastFinite():
            yield f"  The loss is NaN or infinite; {NOT_KNOWN_SINCE}"
        elif last is not None:
            until = f"step {last.step}" if last.step is not None else _format_time(last.time)
            yield f"  The loss is NaN or infinite, and was finite until {until}"
            good = self.newest_good
            none = "not known: their names have an epoch, and no step" if self.unclear else "none"
            where = none if good is None else f"{printable(good.path)}: resume from it"
            yield f"  Newest proved checkpoint from before: {where}"

    def _table(self) -> Iterator[str]:
        names = [printable(Path(one.path).name) for one in self.proofs.checkpoints]
        width = max(map(len, names))
        for name, one in zip(names, self.proofs.checkpoints, strict=True):
            step = "" if one.step is None else str(one.step)
            size = format_size(one.step_dir.size)
            when, word = _format_time(one.step_dir.changed_at), self._word(one)
            yield f"  {step:>9}  {name:<{width}}  {when}  {size:>9}  {word}"
            if self.is_late(one):
                yield f"             {AFTER_FINITE}"
            for kind in dict.fromkeys(damage.kind for damage in one.damages):
                first, *others = (damage for damage in one.damages if damage.kind is kind)
                more = f" (and {len(others)} more)" if others else ""
                yield f"             {kind}: {printable(str(first))}{more}"

    def as_data(self) -> dict[str, object]:
        """Returns the same for programs: sizes in bytes, times in Unix seconds, 0 if unknown."""
        run, kind = self.spec.labels
        newest, good = self.proofs.newest_proved, self.newest_good
        return {
            "run": run,
            "checkpoint": kind,
            "is_copy": self.spec.is_copy,
            "resume_problem": printable(self.proofs.resume_problem),
            "newest_proved": None if newest is None else printable(newest.path),
            "loss_not_finite": self.last_finite is not None,
            "loss_finite_until": self.last_finite and self.last_finite.step,
            "loss_finite_at": self.last_finite and (self.last_finite.time or None),
            "newest_good": None if good is None else printable(good.path),
            "checkpoints": [
                {
                    "path": printable(one.path),
                    "step": one.step,
                    "state": one.state,
                    "settling": self.is_settling(one),
                    "after_finite_loss": self.is_late(one),
                    "size": one.step_dir.size,
                    "changed_at": one.step_dir.changed_at,
                    "completed_at": one.step_dir.completed_at,
                    "damages": [
                        {"kind": damage.kind, "text": printable(str(damage))}
                        for damage in one.damages
                    ],
                }
                for one in self.proofs.checkpoints
            ],
        }


def list_checkpoints(
    run: RunConfig, state_folder: Path | None, *, seconds: float = inf
) -> Sequence[CheckpointList]:
    """Proves the checkpoints of `run`, for so many seconds of each kind. Raises OSError.

    Reads what the exporter has proved, and writes nothing. Of a folder whose kinds are guessed, as
    that of `trainwarden run`, a kind without checkpoints is left out beside another one.
    """
    specs = (*checkpoint_specs(run), *copy_specs(run))
    found: dict[tuple[str, bool], list[CheckpointList]] = {}
    # within some seconds, as before a start, no logs are read
    last_finite = _last_finite_loss(run, state_folder) if seconds == inf else None
    for spec in specs:
        kind = _list_kind(spec, state_folder, seconds, last_finite)
        found.setdefault((spec.layout.folder, spec.is_copy), []).append(kind)
    return [
        one
        for kinds in found.values()
        for one in [kind for kind in kinds if kind.proofs != ProofSnapshot()] or kinds[:1]
    ]


def _list_kind(
    spec: CheckpointSpec, state_folder: Path | None, seconds: float, last_finite: LastFinite | None
) -> CheckpointList:
    scanner = CheckpointScanner(spec, listed=MAX_LISTED if last_finite is None else MAX_ENTRIES)
    snapshot = scanner()
    for _ in range(MAX_SCANS):
        if not snapshot.result.unexamined_count:
            break
        snapshot = scanner()
    known = open_proofs(state_folder, spec).value
    state = StateFile(None, type(known), empty=known)
    prover = CheckpointProver(
        spec, lambda: snapshot, state=state, rate=UnlimitedRate(), last_finite=last_finite
    )
    proofs = prover.prove_all(seconds)
    if spec.is_copy:  # no resume takes one
        proofs = replace(proofs, resume_problem="", tracker_problem="", resume_kind="")
    shown = [
        one
        for number, one in enumerate(proofs.checkpoints)
        if number < 2 * MAX_LISTED or one.state not in ("unproved", "incomplete")
    ]
    left_out = len(proofs.checkpoints) - len(shown)
    proofs = replace(proofs, checkpoints=tuple(shown))
    return CheckpointList(spec, proofs, last_finite, left_out, time.time())


def _last_finite_loss(run: RunConfig, state_folder: Path | None) -> LastFinite | None:
    """Returns until when the loss was finite, while the last loss in a log is not.

    Goes on where the exporter has read a log, else reads it from its start; for some seconds.
    """
    store, found = LogStateStore(state_folder), list[LastFinite]()
    for spec in log_specs(run):
        state = store.load(run.name, spec.name)
        follower = LogFollower(spec, state if state.listed else replace(state, listed=1.0))
        for _ in range(MAX_POLLS):
            before = follower.changes
            follower.poll()
            if follower.changes == before:
                break
        counts = follower.retire().counts
        steps, times = counts.finite_until, counts.finite_at
        lost = [name for name in {**steps, **times} if "loss" in name]
        found += [LastFinite(steps.get(name), times.get(name, 0.0)) for name in lost]
    if not found:
        return None
    return LastFinite(
        min((one.step for one in found if one.step is not None), default=None),
        min((one.time for one in found if one.time), default=0.0),
    )


def check_checkpoints(context: PreflightContext) -> Finding | None:
    """Warns if the run would resume from a damaged checkpoint."""
    try:
        lists = run_with_timeout(
            TIMEOUT_SECONDS,
            lambda: [
                one
                for run in context.runs
                for one in list_checkpoints(run, context.config.state_folder, seconds=CHECK_SECONDS)
            ],
        )
    except (OSError, TimeoutError) as error:
        return Finding("checkpoints", "warn", f"not read: {error}")
    lists = [one for one in lists if one.proofs.checkpoints and not one.spec.is_copy]
    if not lists:
        return None
    problems = [one.proofs.resume_problem for one in lists if one.proofs.resume_problem]
    if not problems:
        proved = sum(one.proofs.count("proved") for one in lists)
        newest = ", ".join(_name(one.proofs.newest_proved) for one in lists)
        return Finding(
            "checkpoints", "ok", f"{plural(proved, 'checkpoint')} proved, the newest: {newest}"
        )
    return Finding(
        "checkpoints",
        "warn",
        "a resume would take a damaged checkpoint",
        tuple(line for one in lists for line in one.lines()),
        "resume from a proved one by the option of the framework, or move the damaged one away",
    )


def _format_time(time: float) -> str:
    return f"{datetime.fromtimestamp(time).astimezone():%Y-%m-%d %H:%M:%S}"


def _name(proof: CheckpointProof | None) -> str:
    return "none" if proof is None else printable(Path(proof.path).name)
