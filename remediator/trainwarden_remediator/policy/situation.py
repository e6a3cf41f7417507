"""What decides who acts, apart from an alert and the decisions about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trainwarden_exporter.processes.announcements import AnnouncedWorker
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import (
    NOBODY,
    YOU,
    before_alert,
    left_alone,
    stall_handling,
    urgency,
)
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import PastAction, Reason


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides who acts, apart from an alert and the decisions about it."""

    now: float
    """Unix seconds."""
    mode: str = "act"
    holds: Sequence[Hold] = ()
    """The holds in force."""
    actions: Sequence[PastAction] = ()
    """The last actions, oldest first."""
    given_up: Collection[WorkerKey] = ()
    """Workers of incidents that were closed for want of attempts."""
    given_up_before: Collection[WorkerKey] = ()
    """Those whose alert has ended since: if it fires again soon, it is the same incident."""
    may_restart: Collection[WorkerKey] = ()
    """The workers that the remediator may restart."""
    trainers: Collection[WorkerKey] = ()
    """The trainers of all runs."""
    without_checkpoints: Collection[str] = ()
    """The runs without known checkpoints: see Setup."""
    calls: bool = True
    """Whether a receiver is notified of what the remediator gives up,"""
    pages: bool = True
    """and where a playbook calls an operator."""
    announced: Mapping[WorkerKey, AnnouncedWorker] = field(default_factory=dict)
    """The commands of `trainwarden run`."""
    halted: Mapping[str, str] = field(default_factory=dict)
    """How operators have halted runs, by run: see `halted_runs`."""
    finished: Collection[str] = ()
    """The runs that have finished, as the exporter shows."""
    last_steps: Mapping[str, float] = field(default_factory=dict)
    """When each run made its last step, by run."""
    last_lines: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """When the last line of each run, log and pattern was read."""
    ending: Collection[str] = ()
    """The runs that have made all their steps, and have not ended."""
    dead: Collection[str] = ()
    """The runs whose trainer does not run, and that have not finished."""
    is_stopped: Callable[[str, str], bool] = lambda _run, _worker: False
    """Whether an operator stopped a worker, or without a worker the run, of `trainwarden run`."""

    stop_reason: Callable[[str, str], Reason] = lambda _run, _worker: "stopped"
    """The reason of the decision about what was stopped."""
    dismissed: Mapping[WorkerKey, str] = field(default_factory=dict)
    """How what was dismissed had ended before: see AnnouncedRuns."""

    def before_alert(self, key: WorkerKey) -> tuple[str, str]:
        """Returns who starts a worker that is gone, and what is done, while no alert reports it."""
        if key in self.given_up or key in self.given_up_before:
            return YOU, f"the remediator gave up on {'/'.join(key)}"
        able, announced = key in self.may_restart, self.announced.get(key)
        # Its wrapper lives, else it could not be restarted.
        if able and announced is not None and announced.announcement.restarts_itself:
            return NOBODY, "its `trainwarden run --restart on-failure` starts it again"
        return before_alert("/".join(key), may_restart=able, mode=self.mode)

    def stall_handling(self, run: str) -> tuple[str, str]:
        """Returns who acts on a run that stands still and is not proved to hang: see AlertView.

        One whose trainer is dead is started, not restarted.
        """
        if halted := self.halted.get(run):
            return YOU, left_alone(halted)
        trainers = [key for key in self.trainers if key.run == run]
        if run in self.dead and trainers:
            return min(map(self.before_alert, trainers), key=lambda one: urgency(one[0]))
        keys = (key for key in self.may_restart if key.run == run)
        return stall_handling(
            may_restart=any(key in self.trainers for key in keys),
            mode=self.mode,
            without_checkpoints=run in self.without_checkpoints,
            calls=self.calls,
            last_step_made=run in self.ending,
        )

    def has_finished(self, run: str, worker: str) -> bool:
        """Whether a run has finished, or an announced worker of it; else all its trainers."""
        own = self.announced.get(WorkerKey(run, worker))
        trainers = [self.announced.get(key) for key in self.trainers if key.run == run]
        ends = {one and one.announcement.state for one in ([own] if own else trainers)}
        return run in self.finished or ends == {"finished"}

    def is_started(self, run: str, worker: str, since: float, within: float) -> bool:
        """Whether an operator has started a worker since, at most `within` seconds ago.

        Without a worker: the trainers of the run, and all its other announced workers. An older
        start ends no alert: what it announces may have ended unseen.
        """
        own = {
            key: one.announcement
            for key, one in self.announced.items()
            if key.run == run and worker in ("", key.worker)
        }
        trainers = {key for key in self.trainers if key.run == run}
        keys = {WorkerKey(run, worker)} if worker else trainers
        return (
            bool(keys)
            and keys <= own.keys()
            and all(
                not one.has_ended
                and one.announced_at > since
                and abs(self.now - one.announced_at) < within
                for one in own.values()
            )
        )

    def is_out_of_loop(self, run: str, worker: str, since: float, within: float) -> bool:
        """Whether an operator's start of a worker has ended its restart loop, as `is_started`.

        Only a start from which on its restarts are counted again, and without another one since.
        """
        found = self.announced.get(WorkerKey(run, worker))
        counted = 0.0 if found is None else found.announcement.counted_since
        return (
            found is not None
            and counted > since
            and self.is_started(run, worker, since, within)
            and not any(at > counted for at, _ in found.announcement.own_restarts)
        )


def situation_of(setup: Setup, now: float) -> Situation:
    """Returns what the configuration decides; holds and what the journal has are not in it.

    `now` in Unix seconds.
    """
    return Situation(
        now,
        setup.config.mode,
        may_restart=setup.restartable,
        trainers=setup.trainer_keys,
        without_checkpoints=setup.without_checkpoints,
        calls=setup.calls,
        pages=setup.pages,
        announced=setup.announced.workers,
        is_stopped=setup.is_stopped,
        stop_reason=setup.stop_reason,
        dismissed=setup.announced.dismissed,
    )
