"""What the exporter shows of the effect of an action. Pure.

All times are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.step_dirs.names import counts_epochs
from trainwarden_remediator.config.playbooks import Condition, Verify
from trainwarden_remediator.journal.event_text import describe_taken_over
from trainwarden_remediator.model import TakenOver
from trainwarden_remediator.observation.model import (
    START_TOLERANCE_SECONDS,
    ExporterState,
    RunState,
    ServerState,
)
from trainwarden_remediator.policy.conditions import is_down, is_stalled, still_holds
from trainwarden_remediator.policy.verification import Look

UNCERTAIN_STEPS = 2
"""By so many steps names and logs may differ: they count from zero or from one."""

NEVER_PROBED_SECONDS = 45.0
"""A server that is up for so long without a completion probe is never probed, like some engines and
all routers."""

_NEEDS_PATH = "is asked for one only with `deep_probe: {enabled: true, path: …}` in an exporter.yml"
_IS_ROUTER = "is a router: only the servers behind it complete requests"
NOT_PROBED = {
    "generic": _NEEDS_PATH,
    "triton": _NEEDS_PATH,
    "sglang_router": _IS_ROUTER,
    "vllm_router": _IS_ROUTER,
}
"""Why the exporter requests no completion from a server as shipped, by its engine."""

USUAL_STEPS, SILENT_SECONDS = 5, 15.0
"""After so many usual steps without a step, and so many seconds, a run that repeats steps may stand
where it stood before."""

HOPELESS_SECONDS = 30.0
"""How long a server that the run needs may be down before waiting for a first step is given up."""

_GROWING = frozenset({Condition.OVER_MEMORY_LIMIT, Condition.MEMORY_BELOW_FLOOR, Condition.BRAKING})
"""Conditions that come back after a start, though the run makes new steps."""


@dataclass(frozen=True, slots=True)
class EffectCheck:
    """How the effect of an action on `key` that began at `began` is verified.

    `step`, `checkpoint`, `proved` are the progress of the run at the time of the intent: its step,
    and those of its newest complete and its newest proved checkpoint. `restartable` are the workers
    that another action could heal; `keys` are all workers of the target where it has several.
    `trainer`: one of them is a trainer, which has healed only once it makes steps: it may crash on
    its resume, long after its start. `condition`: what the action is to end.
    """

    key: WorkerKey
    began: float
    verify: Verify
    checkpoint: float | None = None
    restartable: Collection[WorkerKey] = ()
    keys: Collection[WorkerKey] = ()
    trainer: bool = False
    step: float | None = None
    proved: float | None = None
    condition: Condition | None = None

    def look(
        self,
        exporter: ExporterState,
        now: float,
        *,
        problem: str,
        start_failure: str,
        taken_over: TakenOver | None,
    ) -> Look:
        """Returns what `exporter` shows at `now`.

        `problem`: why the action itself counts as without success, or "". `start_failure`: how what
        it started has failed, if that is known.
        """
        lives, remark = self.has_processes(exporter), self.remark(exporter)
        run = exporter.runs.get(self.key.run)
        hopeless = self.hopeless_reason(exporter, now)
        problem = problem or self.health_problem(exporter, now)
        if not lives:  # the exporter may still show its predecessor as finished
            problem = problem or start_failure
        if taken_over is not None:
            problem = hopeless = describe_taken_over(taken_over)
        if taken_over == "ended_with_run" and self.run_has_finished(exporter):
            problem, remark = "", problem  # no fault is left to be healed
        return Look(
            problem,
            hopeless,
            remark,
            taken_over,
            makes_new_steps=self.makes_new_steps(exporter),
            is_back=self.is_back(exporter, now),
            has_processes=lives,
            stuck=run is not None and run.stuck and self._shows_start(run, exporter),
            start_failure=start_failure,
            extra_seconds=self.extra_seconds(exporter),
        )

    def health_problem(self, exporter: ExporterState, now: float) -> str:
        """Why the action has not helped yet, or ""."""
        return (self.verify.serves and self._server_problem(exporter, now)) or (
            (self._needs_step(exporter) and self._progress_problem(exporter, now)) or ""
        )

    def makes_new_steps(self, exporter: ExporterState) -> bool:
        """Whether its run makes steps that it had not made before the action, or has finished.

        Such a target has healed at the second look: the first one may still show the resume before,
        as the exporter sees the steps of a process before its start. Any other must stay healthy
        for `stable_for`: a trainer that fails at a step repeats those before it each time. Always
        False where steps prove nothing: a process that leaks makes new ones up to its limit.
        """
        if self.condition in _GROWING:
            return False
        run, finished = exporter.runs.get(self.key.run), self.run_has_finished(exporter)
        return self._needs_step(exporter) and (finished or not self._repeats_steps(run))

    def is_back(self, exporter: ExporterState, now: float) -> bool:
        """Whether a condition that comes back after a start is seen to hold at `now` (Unix s)."""
        if self.condition is None or self.condition not in _GROWING:
            return False
        return still_holds(self.condition, self.key, exporter, now)

    def run_has_finished(self, exporter: ExporterState) -> bool:
        run = exporter.runs.get(self.key.run)
        return run is not None and run.finished

    def extra_seconds(self, exporter: ExporterState) -> float:
        """Seconds beyond those of `verify` that the start may take, as the exporter shows."""
        grants = [0.0]
        if self.verify.serves:
            servers = self._servers(exporter)
            grants += [one.start_grace for one in servers if one.reason == "starting"]
        run = exporter.runs.get(self.key.run)
        if (
            self._needs_step(exporter)
            and run is not None
            and not self._has_made_step(run, exporter)
        ):
            grants.append(run.stall_limit or 0.0)
        return max(grants)

    def hopeless_reason(self, exporter: ExporterState, now: float) -> str:
        """Why verification ends early, or "".

        No other action runs in the run meanwhile, not even for the server that it waits for.
        """
        if not self._needs_step(exporter):
            return ""
        run, servers = exporter.runs.get(self.key.run), exporter.servers.get(self.key.run, ())
        if run is not None and self._shows_start(run, exporter) and is_stalled(run, now, servers):
            return "it stands still again"
        for server in servers:
            since = max(server.since or self.began, self.began)
            whose = WorkerKey(self.key.run, server.worker)
            if (
                whose not in (self.key, *self.keys)
                and whose in self.restartable
                and is_down(server)
                and now - since >= HOPELESS_SECONDS
            ):
                return f"its inference server {server.name} is down ({server.reason})"
        return ""

    def remark(self, exporter: ExporterState) -> str:
        """What the report mentions though the action has helped, or ""."""
        unproved = next(filter(_is_never_probed, self._servers(exporter)), None)
        if self.verify.serves and unproved is not None:
            why = "`deep_probe` of exporter.yml is off for it, or no model of it is known"
            if known := NOT_PROBED.get(unproved.engine):
                why = f"its engine {unproved.engine} {known}"
            asked = f"no token was requested from server {unproved.name}"
            return f"{asked}, so it may answer and not work: {why}"
        run = exporter.runs.get(self.key.run)
        if run is None or run.finished or not self._needs_step(exporter):
            return ""
        first, saved = run.first_step, self.checkpoint
        if first is not None and saved is not None and saved < (run.checkpoint or 0.0) < first:
            saved = run.checkpoint  # it saved once more on SIGTERM
        if saved is not None and self.proved is not None and _came_from(run) < saved:
            saved = min(saved, self.proved)  # those above are damaged, or were not read yet
        unit, made = "step", self.step or math.inf
        if saved is not None and 2 * saved < made and counts_epochs(run.proved_checkpoint):
            # Its number says nothing about the steps before it, except that there were some.
            unit, saved = "epoch", saved if run.resume_step == 0 else None
        start = run.resume_step if saved is None else max(saved, run.resume_step or 0.0)
        if start is None or first is None:
            return "" if run.last_step_made else "the step at which it resumed is unknown"
        if run.resume_step is not None and run.resume_step < start:
            return f"resumed from step {run.resume_step:g}, though {unit} {start:g} was saved"
        off = first - start - 1
        # Steps between them were perhaps made and not logged, as with one line in N steps.
        if not off or (off > 0 and run.step_spacing != 1):
            return ""
        did = f"{'skipped' if off > 0 else 'repeated'} {plural(abs(round(off)), 'step')}"
        return f"{did}: resumed with step {first:g}, not {start + 1:g}"

    def has_processes(self, exporter: ExporterState) -> bool:
        """Whether any worker of the target has a process that started after the action began."""
        own = (exporter.workers.get(key) for key in self.keys or (self.key,))
        return any(
            worker is not None
            and worker.processes > 0
            and (worker.started_at or 0.0) >= self.began - START_TOLERANCE_SECONDS
            for worker in own
        )

    def _needs_step(self, exporter: ExporterState) -> bool:
        """Whether the run must make a step; not where the exporter has never observed one of it.

        A step that was known at the intent counts too: its metrics may be missing for a moment.
        """
        run = exporter.runs.get(self.key.run)
        observed = self.step is not None or (run is not None and run.observed)
        return self.verify.progress or (self.trainer and observed)

    def _servers(self, exporter: ExporterState) -> tuple[ServerState, ...]:
        """The inference servers of all workers of the target."""
        return tuple(one for key in self.keys or (self.key,) for one in exporter.servers_of(key))

    def _server_problem(self, exporter: ExporterState, now: float) -> str:
        servers = self._servers(exporter)
        if not servers:
            return "the exporter shows no inference server for it"
        for server in servers:
            worker = exporter.workers.get(WorkerKey(self.key.run, server.worker))
            started = max(self.began, (worker.started_at if worker else None) or 0.0)
            if not server.up:
                return f"{server.name} is not up ({server.reason or 'no reason given'})"
            if (server.worked_at or 0.0) > started:
                continue
            if _is_never_probed(server) and now - (server.since or now) >= NEVER_PROBED_SECONDS:
                continue
            if not server.answered or (server.asked_at or 0.0) <= started:
                return f"{server.name} has not completed a token yet"
        return ""

    def _progress_problem(self, exporter: ExporterState, now: float) -> str:
        run = exporter.runs.get(self.key.run)
        if run is None:
            return "the exporter does not show the run's progress"
        if run.finished or run.last_step_made:
            return ""
        if not self._has_made_step(run, exporter):
            return "it has not made a step yet"
        # A run that hangs at a step makes those before it again after each restart.
        usual = run.usual_step_seconds
        silence = now - (run.last_step_at or run.progress_at or now)
        if usual is None or run.phase != "training" or not self._repeats_steps(run):
            return ""
        stands = silence > max(SILENT_SECONDS, USUAL_STEPS * usual)
        return "it makes no step any more, and has made none that is new" if stands else ""

    def _repeats_steps(self, run: RunState | None) -> bool:
        """Whether it has made no step since the action that it had not made before."""
        return run is not None and self.step is not None and (run.step or 0.0) <= self.step

    def _has_made_step(self, run: RunState, exporter: ExporterState) -> bool:
        # The predecessor may have made steps after the action began, while it was saving.
        worker = exporter.workers.get(self.key)
        started = max(self.began, (worker.started_at if worker else None) or 0.0)
        if run.last_step_at is not None:
            return run.last_step_at > started
        # A search has trials and no steps, and a step that was read late has no time; a start
        # begins with another phase.
        shown = run.first_step is not None or (run.step is None and self.step is None)
        return shown and run.phase == "training" and (run.progress_at or 0.0) > started

    def _shows_start(self, run: RunState, exporter: ExporterState) -> bool:
        """Whether the exporter shows the progress of what the action has started."""
        began = self.began - START_TOLERANCE_SECONDS
        is_own = self.has_processes(exporter) and (run.progress_at or 0.0) >= began
        return is_own or self._has_made_step(run, exporter)


def describe_early_progress(
    run: RunState | None, progress_at: float | None, changed_at: float | None
) -> str:
    """Returns that a stalled run had made a new step before a restart ended it, or "".

    `progress_at` is its last progress at the decision, `changed_at` the first change that was made.
    Its log is read with a delay, so that step may be seen only afterwards.
    """
    last = None if run is None else run.interruption_start
    if last is None or progress_at is None or changed_at is None:
        return ""
    return "it had made a new step before the signal" if progress_at < last < changed_at else ""


def passed_over(run: RunState) -> Mapping[str, Any]:
    """Returns the step, and the path if known, of a proved checkpoint that a run makes again.

    It may overwrite that. Empty if it has resumed from there or is beyond: as by the rule of
    TrainingResumedElsewhere.
    """
    saved, first, step = run.resume_checkpoint, run.first_step, run.step
    if saved is None or first is None or step is None:
        return {}
    if run.finished or saved + 1 - first <= UNCERTAIN_STEPS or step >= saved:
        return {}
    known = run.proved_checkpoint if run.proved_step == saved else ""
    return {"passed_over": saved} | ({"proved_checkpoint": known} if known else {})


def _came_from(run: RunState) -> float:
    """Returns the step from which the run has resumed; infinite if unknown."""
    if run.resume_step is not None:
        return run.resume_step
    return math.inf if run.first_step is None else run.first_step - 1


def _is_never_probed(server: ServerState) -> bool:
    return server.asked_at is None and server.worked_at is None
