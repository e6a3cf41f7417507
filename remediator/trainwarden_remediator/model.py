"""The types of the decision model: incidents, actions, decisions and the circuit breaker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.config.targets import Budget

WORKER_GONE, RESTART_LOOP = "TrainingWorkerGone", "TrainingWorkerRestartLoop"
GAVE_UP = "TrainingRemediationGaveUp"
"""Alerts of a worker that fails at each start; the last is about the remediator itself."""
NOT_FINITE = "TrainingNotFinite"
RESUMED_ELSEWHERE = "TrainingResumedElsewhere"

"""Reports, as a warning without a playbook, a run that is not proved to hang."""

Result = Literal["done", "failed", "interrupted"]
"""The result of an action; `interrupted`: ended before it was complete."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert that fired, as stored in the journal. Times are Unix seconds.

    `run`, `worker` and `remediation` are untrusted input: they are only compared with the
    configuration. The labels are matched against silences.
    """

    id: int
    fingerprint: str
    starts_at: float
    alert: str
    run: str
    worker: str
    remediation: str
    last_received_at: float
    resolved: bool
    last_decision: str = ""
    """`Decision.text` of the last recorded decision."""
    last_decided_at: float = 0.0
    """When that decision was recorded."""
    last_detail: str = ""
    """`Decision.detail` of it."""
    blocked_since: float | None = None
    """When it came to wait for an operator, but for moments in which its alert had ended."""
    labels: Mapping[str, str] = field(default_factory=dict)
    part_of: int | None = None
    """The incident of the outage that this is a part of, if it has one."""

    @property
    def is_over(self) -> bool:
        """Whether its alert has ended, and no stall lasts that it reported."""
        return self.resolved and self.last_decision not in STALL_LASTS

    @property
    def outage(self) -> int:
        """The number under which it is shown: one outage is one incident."""
        return self.id if self.part_of is None else self.part_of

    def repeated_for(self, decision: Decision, now: float) -> float:
        """Returns for how many seconds `decision` has been the last one; 0 if it is another."""
        return now - self.last_decided_at if self.last_decision == decision.text else 0.0


@dataclass(frozen=True, slots=True)
class PastAction:
    """An action in a target's history; `ended_at` is None while its outcome is open.

    `rung` counts from 0. `step` and `checkpoint` are the progress of the run when the action
    started, if known.
    """

    incident: int
    key: WorkerKey
    intent_at: float
    ended_at: float | None
    healed: bool = False
    rung: int = 0
    step: float | None = None
    checkpoint: float | None = None
    kind: str = "restart"
    """The kind of action in the journal."""
    result: Result | None = None
    """None while the action is in progress."""
    result_at: float | None = None
    """When the action had its result, before its effect was verified."""
    attempt: int | None = None
    """Which of the attempts on its target it is, from 1, of at most `attempts`."""
    attempts: int | None = None
    restarts: int | None = None
    """How many there were of its target within a day, up to this one; None if not counted."""
    alert: str = ""
    """The alert about which it is; "" if not known."""
    account: int | None = None
    """The `Budget.account` of its target."""

    @property
    def acted_at(self) -> float:
        """When the target was acted upon, as far as known: cooldowns count from then."""
        return self.intent_at if self.result_at is None else self.result_at


@dataclass(frozen=True, slots=True)
class Approval:
    """An operator's consent to the next action of an incident, in mode observe; Unix seconds."""

    at: float
    proposed_at: float
    """When the action was proposed: processes that started later are not those of the proposal."""
    target: str
    """Run and worker that the proposal was about, as `run/worker`."""


class Verdict(StrEnum):
    ACT = "act"
    WAIT = "wait"
    """No action now; decided again in the next cycle."""
    REFUSE = "refuse"
    """No action is possible unless an operator changes something."""
    OBSERVE_FIRST = "needs_observation"
    """A snapshot is needed before this can be decided."""


Reason = Literal[
    # act
    "restart",
    "clean",
    "hold",
    "notify",
    # refuse
    "resolved",
    "alert_stale",
    "progressing",
    "no_remediation",
    "unknown_playbook",
    "unknown_target",
    "attempts_exhausted",
    "ladder_exhausted",
    "restarts_without_progress",
    "has_finished",
    "stopped",
    "ended_with_run",
    "last_step_made",
    "no_checkpoint",
    "recovery_mismatch",
    "several_trainers",
    "processes_differ",
    "config_differs",
    "largest_left_alone",
    "damaged_resume",
    # wait
    "observe_mode",
    "approval_void",
    "held",
    "breaker_open",
    "held_by_alert",
    "mass_failure",
    "busy",
    "larger_worker_first",
    "alert_lingers",
    "cooldown",
    "observation_failed",
    "not_active",
    "silenced",
    "inhibited",
    "no_candidate",
    "managed_elsewhere",
    "ambiguous_target",
    "already_restarted",
    "condition_cleared",
    "contradicted",
    "condition_returned",
    "stall_lasts",
    "root_cause_elsewhere",
    "awaiting_progress",
    "awaiting_operator",
    "disk_unusable",
    "at_prompt",
    "suspended",
    "moving",
    "undecided",
    "at_work",
    "account_limit",
    "saving",
    # look
    "needs_observation",
]

STOPPED: frozenset[Reason] = frozenset({"stopped", "ended_with_run"})
"""Reasons for which a worker of `trainwarden run` is not to run any more."""

TakenOver = Literal["stopped", "ended_with_run", "started_by_operator"]
"""What has ended or started a worker while an action on it was verified."""

CLOSED: frozenset[Reason] = frozenset({"resolved", "alert_stale", "progressing"})
"""Reasons that close an incident until its alert is received again."""

GIVEN_UP: frozenset[Reason] = frozenset(
    {"attempts_exhausted", "ladder_exhausted", "restarts_without_progress"}
)
"""Reasons that close an incident permanently and notify the on-call."""

NEEDS_OPERATOR: frozenset[Reason] = frozenset(
    {
        *("no_checkpoint", "recovery_mismatch", "several_trainers", "processes_differ"),
        *("config_differs", "largest_left_alone", "damaged_resume", "last_step_made"),
    }
)
"""Reasons that notify the on-call; decisions continue once the operator has fixed the cause."""

WITHOUT_CHECKPOINT = "refuse no_checkpoint"
"""The last decision about a run that cannot be restarted, as long as it makes no progress."""

NOT_HELD: frozenset[str] = frozenset(
    {"act hold", "wait managed_elsewhere", "refuse has_finished", "refuse unknown_target"}
)
"""Last decisions that a hold leaves as they are: no action would follow its end either."""

HELD_BY_ALERT = "wait held_by_alert"
"""The last decision about an alert while another one holds restarts; its detail names that."""

STALL_LASTS: frozenset[str] = frozenset({"wait stall_lasts", WITHOUT_CHECKPOINT})
"""Last decisions about a run that has made no progress since it stalled, though its alert ended."""

NO_ACTION_NEEDED: frozenset[Reason] = frozenset(
    {
        *("observe_mode", "approval_void", "silenced", "inhibited", "not_active", "has_finished"),
        *STOPPED,
        *("condition_cleared", "condition_returned", "already_restarted", "alert_lingers"),
        *("awaiting_progress", "root_cause_elsewhere"),
    }
)
"""Reasons for which no action is needed; a wait for any other reason should be temporary."""

BLOCKED_SECONDS = 120.0
"""Time after which a blocked alert is reported: some waits end within seconds."""

BLOCKING: tuple[Reason, ...] = (
    "held",
    "mass_failure",
    "observation_failed",
    "no_candidate",
    "managed_elsewhere",
    "ambiguous_target",
    "disk_unusable",
    "at_prompt",
    "suspended",
    "at_work",
    "account_limit",
    "contradicted",
)
"""Reasons to wait that may last until an operator changes something. The circuit breaker has an
event of its own."""


def is_unattended(last_decision: str) -> bool:
    """Whether no action follows a decision (its text) until an operator changes something."""
    verdict, _, reason = last_decision.partition(" ")
    consents = {"observe_mode", "approval_void", "awaiting_operator", "held", "breaker_open"}
    elsewhere = {"managed_elsewhere", "at_prompt", "suspended", "at_work"}
    return verdict == "refuse" or reason in NEEDS_OPERATOR | consents | elsewhere


@dataclass(frozen=True, slots=True)
class Need:
    """The condition of the worker `key` that a restart is to end.

    `no_step_since`: the condition has healed, and the run has made no step since (Unix seconds).
    """

    condition: Condition
    key: WorkerKey
    no_step_since: float | None = None

    @property
    def yields_to_halt(self) -> bool:
        """Whether an operator stops the restart by halting the run: at a prompt, with SIGSTOP."""
        return self.condition is Condition.NO_PROGRESS or self.no_step_since is not None


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and its reason. `target` is None if none was determined.

    `rung` is the index in the playbook's ladder.
    """

    verdict: Verdict
    reason: Reason
    target: Budget | None = None
    detail: str = ""
    rung: int = 0
    attempt: int | None = None
    """Which of the attempts on its target an action would be, from 1."""
    need: Need | None = None
    """What a restart is to end; None for every other action."""

    @property
    def text(self) -> str:
        """Verdict and reason; a decision with another text than the last one is recorded."""
        return f"{self.verdict} {self.reason}"

    @property
    def final(self) -> bool:
        """Whether this decision closes the incident."""
        return self.reason == "no_remediation" or self.reason in CLOSED | GIVEN_UP


BREAKER_OPENED = "breaker_opened"
"""Name of the journal's timestamp at which the breaker opened."""

BREAKER_RESET = "breaker_reset"
"""Name of the journal's timestamp at which an operator last reset the breaker."""

HARMLESS_KINDS = frozenset({"gpu_cleanup", "notify", "hold"})
"""Kinds of action that the breaker neither counts nor blocks: they terminate no worker."""


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The state of the circuit breaker in the journal. Times are Unix seconds."""

    opened_at: float | None = None
    """When the breaker opened; None while it is closed."""
    reset_at: float = 0.0
    """When an operator last reset the breaker."""

    @classmethod
    def from_timestamps(cls, timestamps: Mapping[str, float]) -> BreakerState:
        """Returns the state from the timestamps of the journal."""
        return cls(timestamps.get(BREAKER_OPENED), timestamps.get(BREAKER_RESET, 0.0))

    def count_actions(self, begun: Iterable[float], within: float, now: float) -> int:
        """Returns how many of the actions that started at these times count at `now`.

        Times in the future count: setting the clock back must not allow more actions.
        """
        since = max(now - within, self.reset_at)
        return sum(at > since for at in begun)


CLOSED_BREAKER = BreakerState()

TargetInstance = Identity | str
"""A process, or one run of a unit, container, pod or job by the identifier that its manager gives
that run. A restart creates another instance."""


def processes_among(instances: Collection[TargetInstance]) -> list[Identity]:
    return [instance for instance in instances if isinstance(instance, Identity)]
