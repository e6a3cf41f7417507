"""What is known of the checkpoints of one kind: proofs, and what a resume takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.entry_check import EntryRecord
from trainwarden_exporter.frameworks.base import CheckpointLayout
from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    SettledRule,
    TrackerRule,
    rules_in,
)
from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_exporter.step_dirs.names import counts_epochs
from trainwarden_exporter.step_dirs.result import WHOLE_SHARE, ScanResult

ABANDONED_SECONDS = 600.0
"""Seconds without a write after which an incomplete checkpoint counts as never to be completed: as
long as TrainingCheckpointIncomplete waits."""

ProofState = Literal["proved", "damaged", "unproved", "unreadable", "incomplete"]


@dataclass(frozen=True, slots=True)
class CheckpointProof:
    """One checkpoint, and what its content shows."""

    path: str
    step_dir: StepDir
    step: int | None
    state: ProofState
    damages: tuple[Damage, ...] = ()
    may_be_cut: bool = False
    """Whether it was read, and nothing shows that its save has ended."""

    @property
    def run_step(self) -> int | None:
        """The step of the run; None if its name has none, or an epoch."""
        return None if counts_epochs(self.path) else self.step


@dataclass(frozen=True, slots=True)
class ProofSnapshot:
    """The checkpoints of one kind, newest first."""

    checkpoints: tuple[CheckpointProof, ...] = ()
    resume_problem: str = ""
    """What is wrong with the checkpoint that a resume takes; empty if no damage is known."""
    tracker_problem: str = ""
    """What is wrong with the tracker file; empty if no damage is known."""
    resume_kind: str = ""
    """The DamageKind of the `resume_problem`; empty where it is only incomplete."""

    @property
    def newest_proved(self) -> CheckpointProof | None:
        return next((one for one in self.checkpoints if one.state == "proved"), None)

    @property
    def resume_points(self) -> list[tuple[int, float]]:
        """Step and time (Unix seconds) of the proved checkpoints whose step is known."""
        return [
            (step, one.step_dir.completed_at)
            for one in self.checkpoints
            if one.state == "proved" and (step := one.run_step) is not None
        ]

    def count(self, state: ProofState) -> int:
        return sum(one.state == state for one in self.checkpoints)

    def damage_counts(self) -> Mapping[DamageKind, int]:
        """Returns the number of damaged checkpoints by kind of damage, for all kinds."""
        kinds = [{damage.kind for damage in one.damages} for one in self.checkpoints]
        kinds += [{DamageKind.TRACKER}] if self.tracker_problem else []
        return {kind: sum(kind in found for found in kinds) for kind in DamageKind}


def build_snapshot(
    layout: CheckpointLayout,
    results: Mapping[str, ScanResult],
    records: Mapping[str, EntryRecord],
    trackers: Mapping[str, str],
    now: float,
) -> ProofSnapshot:
    """Returns the proofs of all listed checkpoints.

    `results` and `trackers` (the text of the tracker file) are by folder, `records` by path.
    """
    found = sorted(
        (
            one
            for folder, result in results.items()
            for one in _proofs(layout, folder, result, records)
        ),
        key=lambda one: one.step_dir.sort_key,
        reverse=True,
    )
    tracker_problems = [
        _tracker_problem(layout, found_in, text)
        for folder, text in trackers.items()
        if (found_in := _in_folder(found, folder)) or not text.strip()
        if _all_listed(results[folder])
    ]
    resume_problems = [
        _resume_problem(layout, _in_folder(found, folder), trackers.get(folder), now)
        for folder in results
    ]
    tracker_problem = next(filter(None, tracker_problems), "")
    problems = [(tracker_problem, DamageKind.TRACKER), *resume_problems]
    problem, kind = next((one for one in problems if one[0]), ("", ""))
    return ProofSnapshot(tuple(found), problem, tracker_problem, kind)


def _all_listed(result: ScanResult) -> bool:
    listed = len(result.complete) + len(result.incomplete)
    return listed == result.complete_count + result.incomplete_count + result.unexamined_count


def _in_folder(found: Iterable[CheckpointProof], folder: str) -> list[CheckpointProof]:
    """Returns the entries of `folder`, except those under a temporary name."""
    return [
        one
        for one in found
        if one.path.rpartition("/")[0] == folder and not one.step_dir.name.partial
    ]


def _proofs(
    layout: CheckpointLayout, folder: str, result: ScanResult, records: Mapping[str, EntryRecord]
) -> Iterator[CheckpointProof]:
    leaves_no_proof = any(isinstance(one, SettledRule) for one in rules_in(layout.completeness))
    for step_dir in (*result.complete, *result.incomplete):
        path = f"{folder}/{step_dir.name.text}"
        record = records.get(path)
        state: ProofState = "unproved" if step_dir.complete else "incomplete"
        damages: tuple[Damage, ...] = ()
        may_be_cut = False
        if record is not None and (step_dir.complete or record.damages):
            damages = record.damages if record.readable else ()
            is_whole = record.shows_end or not leaves_no_proof or _is_as_large(step_dir, result)
            may_be_cut = record.proved and not is_whole
            proved = record.proved and is_whole
            state = "proved" if proved else "damaged" if damages else "unproved"
            state = state if record.readable else "unreadable"
        step = step_dir.step(layout.step_offset)
        yield CheckpointProof(path, step_dir, step, state, damages, may_be_cut)


def _is_as_large(step_dir: StepDir, result: ScanResult) -> bool:
    """Whether it has the size of another complete one: neither was cut short, whatever is in it."""
    others = (one.size for one in result.complete if one is not step_dir)
    return any(step_dir.size >= WHOLE_SHARE * size for size in others)


def tracker_rule(rule: CompletenessRule) -> TrackerRule | None:
    """Returns the rule about the tracker file from which the framework resumes, if any."""
    return next((one for one in rules_in(rule) if isinstance(one, TrackerRule)), None)


def provable(layout: CheckpointLayout) -> str:
    """Returns what can be proved of checkpoints with this layout, as a list of phrases."""
    known = [str(one) for one in layout.provable]
    if (rule := tracker_rule(layout.completeness)) is not None:
        known.append(f"`{rule.file}` against the entries")
    own = "" if layout.provable else "each file by its own format"
    return "; ".join(filter(None, (own, *known)))


def _tracked_number(rule: TrackerRule, text: str) -> int | None:
    match = re.search(rule.pattern, text)
    return int(match["step"]) if match and (match["step"] or "").isdecimal() else None


def _tracker_problem(layout: CheckpointLayout, found: list[CheckpointProof], text: str) -> str:
    """Returns what is wrong with the tracker file with this `text`, or ""."""
    rule = tracker_rule(layout.completeness)
    if rule is None:
        return ""
    if not text.strip():
        return f"{rule.file} is empty"
    number = _tracked_number(rule, text)
    if number is None or any(one.step_dir.name.number == number for one in found):
        return ""
    return f"{rule.file} names step {number}, which does not exist"


def _resume_problem(
    layout: CheckpointLayout, found: list[CheckpointProof], tracker: str | None, now: float
) -> tuple[str, str]:
    """Returns what is wrong with what the framework takes when it resumes, and the DamageKind.

    Both are empty if no damage is known, the kind also where it is incomplete.
    """
    rule = tracker_rule(layout.completeness)
    if rule is not None:
        number = None if tracker is None else _tracked_number(rule, tracker)
        found = [one for one in found if one.step_dir.name.number == number]
    elif not layout.resumes_incomplete:
        found = [one for one in found if one.state != "incomplete"]
    taken = max(found, key=lambda one: one.step_dir.name.sort_key, default=None)
    if taken is None:
        return "", ""
    name = taken.step_dir.name.text
    if taken.step is not None and str(taken.step) not in name:
        name += f" of step {taken.step}"
    if taken.state == "damaged":
        damage = taken.damages[0]
        return f"{name}: {damage} ({damage.kind.replace('_', ' ')})", damage.kind
    abandoned = now - taken.step_dir.changed_at >= ABANDONED_SECONDS
    return (f"{name} is incomplete" if taken.state == "incomplete" and abandoned else "", "")
