"""Looks at the processes of a run while it makes no progress, and samples their stacks."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import PROC, Identity, read_processes
from trainwarden_exporter.processes.stacks.activity import SAMPLES, find_activity
from trainwarden_exporter.processes.stacks.diagnosis import diagnose
from trainwarden_exporter.processes.stacks.flight_recorder import NO_ABSENCES, FlightRecorders
from trainwarden_exporter.processes.stacks.kernel_state import read_kernel_state
from trainwarden_exporter.processes.stacks.members import find_members
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Diagnosis,
    Finding,
    Look,
    Member,
    Movement,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.open_files import OpenFiles
from trainwarden_exporter.processes.stacks.py_spy import read_stacks
from trainwarden_exporter.processes.stacks.surroundings import (
    Surroundings,
    look_around,
    stands_for_ever,
)

LOOK_SECONDS = 5.0
"""Seconds between two looks."""

ROUND_SECONDS = 60.0
"""Seconds between the first samples of two rounds."""

MAX_ROUND_SECONDS = 480.0
"""The same while the run moves: it doubles with each round up to this."""

SAMPLE_SECONDS = 20.0
"""Seconds after which a sample leaves out the remaining processes."""

_KEPT_LOOKS = 12
"""Looks at a process that are kept: those of a minute."""

StuckStacks = frozenset[tuple[Identity, ThreadStack | None]]

ReadStacks = Callable[[int, int], Stacks]


class RunSampler:
    """Looks at the processes of one run.

    It reads no process in health. In a silence, each call of `look` reads the kernel's state of
    all processes; the first three calls of a round also read the stacks. A round begins at once,
    but never within a minute of the one before.
    """

    def __init__(
        self,
        *,
        read_stacks: ReadStacks = read_stacks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_stacks = read_stacks
        self._clock = clock
        self._silence: float | None = None
        self._looks: dict[Identity, deque[Look]] = {}
        self._stacks: dict[Identity, deque[Stacks]] = {}
        """The last three: during a round, those before it count too."""
        self._around: dict[tuple[Identity, Activity], Surroundings] = {}
        """Found once a round."""
        self._samples = SAMPLES
        self._round_began = -math.inf
        self._pause = ROUND_SECONDS
        self._stuck_in: StuckStacks | None = None
        """Where the makers of steps were stuck at the end of the last round."""
        self._confirmed = False
        self._recorders = FlightRecorders()
        self._stood_in: StuckStacks | None = None
        """Where the makers of steps stood when they were asked for dumps, whether they compute or
        wait there; a dump says nothing once they stand elsewhere."""
        self._stood_since = math.inf
        self._absences = NO_ABSENCES

    def look(self, silence: float, members: Sequence[Member]) -> Diagnosis:
        """Looks at the processes of a run that has been silent since `silence` (Unix seconds).

        Returns what the looks in this silence show. Blocks for SAMPLE_SECONDS and one stack at
        most, and longer only while the kernel holds a file of /proc. Raises CollectError.
        """
        if silence != self._silence:
            self.reset()
            self._silence = silence
        now = self._clock()
        if self._samples == SAMPLES and now - self._round_began >= self._pause:
            self._round_began, self._samples = now, 0
        if sampling := self._samples < SAMPLES:
            self._samples += 1
            self._read_all_stacks(members)
        self._read_kernel_states(members)
        if sampling and self._samples == SAMPLES:
            self._around.clear()  # found again
            stands_in = self._standing(members)
            is_same = stands_in is not None and stands_in == self._stood_in
            since = max(silence, self._stood_since)
            self._absences = (
                self._recorders.find_absences(members, since) if is_same else NO_ABSENCES
            )
        diagnosis = self._diagnose(members)
        if sampling and self._samples == SAMPLES:
            moves = diagnosis.movement is Movement.MOVING and stands_in is None
            self._pause = min(2 * self._pause, MAX_ROUND_SECONDS) if moves else ROUND_SECONDS
            stuck_in = _stuck_stacks(diagnosis)
            self._confirmed = stuck_in is not None and stuck_in == self._stuck_in
            self._stuck_in = stuck_in
            if stands_in is not None and not is_same:
                self._stood_in, self._stood_since = stands_in, time.time()
                self._recorders.ask(members)  # after a round: to write a dump looks like movement
        stuck = diagnosis.movement is Movement.STUCK
        return replace(diagnosis, confirmed=stuck and self._confirmed)

    def reset(self) -> None:
        """Forgets the silence; the minute between two rounds remains."""
        self._silence, self._samples, self._pause = None, SAMPLES, ROUND_SECONDS
        self._stuck_in, self._confirmed = None, False
        self._stood_in, self._absences = None, NO_ABSENCES
        for kept in (self._looks, self._stacks, self._around):
            kept.clear()

    def _read_all_stacks(self, members: Iterable[Member]) -> None:
        end = self._clock() + SAMPLE_SECONDS
        for member in members:
            if self._clock() > end:
                stacks = Stacks(problem=f"not reached within {SAMPLE_SECONDS:g} s")
            elif read_kernel_state(member.identity) is None:
                # Members are as of the last scrape: the pid may be that of another process by now.
                stacks = Stacks(problem="has ended")
            else:
                stacks = self._read_stacks(member.identity.pid, member.threads)
            self._stacks.setdefault(member.identity, deque(maxlen=SAMPLES)).append(stacks)

    def _standing(self, members: Iterable[Member]) -> StuckStacks | None:
        """Returns the stacks of the ranks, if all were the same throughout the round."""
        stacks: set[tuple[Identity, ThreadStack | None]] = set()
        for member in members:
            if member.is_trainer:
                samples = self._stacks.get(member.identity, ())
                mains = {one.main(member.identity.pid) for one in samples}
                if len(samples) < SAMPLES or len(mains) > 1:
                    return None
                stacks.update((member.identity, main) for main in mains)
        return frozenset(stacks)

    def _read_kernel_states(self, members: Iterable[Member]) -> None:
        looks: dict[Identity, deque[Look]] = {}
        for identity in (member.identity for member in members):
            # a process that took the pid of another one has another start time
            kernel = read_kernel_state(identity, tid=self._thread_of(identity))
            if kernel is not None:
                looks[identity] = self._looks.get(identity, deque(maxlen=_KEPT_LOOKS))
                looks[identity].append(Look(self._clock(), kernel))
        self._looks = looks

    def _thread_of(self, identity: Identity) -> int | None:
        """Returns the training thread of a worker of Ray Train; None for the main thread."""
        mains = (one.main(identity.pid) for one in reversed(self._stacks.get(identity, ())))
        return next((one.tid for one in mains if one and one.is_training_thread), None) or None

    def _diagnose(self, members: Sequence[Member]) -> Diagnosis:
        files = OpenFiles({member.identity for member in members})
        findings = [
            self._with_surroundings(
                find_activity(
                    member,
                    tuple(looks),
                    tuple(self._stacks.get(member.identity, ())),
                    self._absences.waiting.get(member.rank),
                ),
                files,
            )
            for member in members
            if (looks := self._looks.get(member.identity))
        ]
        ends = chain.from_iterable(one.far_ends for one in findings)
        outside = {end.identity for end in ends if end.identity}.difference(files.inside)
        return diagnose(findings, _may_act(outside), self._absences.absent)

    def _with_surroundings(self, finding: Finding, files: OpenFiles) -> Finding:
        key = finding.member.identity, finding.activity
        if key not in self._around:
            self._around[key] = look_around(finding, files)
        around = self._around[key]
        return replace(
            finding,
            activity=around.activity,
            far_ends=around.far_ends,
            may_end=finding.may_end or around.may_end,
            detail=finding.detail + around.detail,
        )


def sample_run(run: RunWorkers, matcher: Matcher, *, pause: float = LOOK_SECONDS) -> Diagnosis:
    """Returns what one round of samples of the processes of `run` shows. Raises CollectError.

    Dumps of a Flight Recorder are described beside it: they may be of a hang that is over.
    """
    sampler = RunSampler()
    for number in range(SAMPLES):
        if number:
            time.sleep(pause)
        members = find_members(run, matcher.find())
        diagnosis = sampler.look(0.0, members)
    return replace(diagnosis, dumps=FlightRecorders().describe(members, time.time()))


def _may_act(outside: Collection[Identity]) -> dict[Identity, bool]:
    """Returns which of these may act, or a process below it may: a server may compute there."""
    if not outside:
        return {}
    processes = read_processes()
    trees = {one: (one.pid, *descendants(processes, [one.pid])) for one in outside}
    return {
        one: not all(stands_for_ever(pid, PROC) for pid in tree if processes[pid].alive)
        for one, tree in trees.items()
        # a process that took the pid of another one has another start time
        if one.pid in processes and processes[one.pid].identity == one
    }


def _stuck_stacks(diagnosis: Diagnosis) -> StuckStacks | None:
    """Returns the stacks of the processes that make the steps, if they may be stuck."""
    if diagnosis.movement is Movement.MOVING:
        return None
    return frozenset(
        (one.member.identity, one.stacks.main(one.member.identity.pid))
        for one in diagnosis.findings
        if one.member.is_trainer
    )
