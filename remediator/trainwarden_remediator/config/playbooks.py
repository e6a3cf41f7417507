"""Playbooks: the actions against each condition, their order, and how they are verified."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section
from trainwarden_exporter.config_file.types import Seconds

MAX_TRIES = 100
"""More than any budget allows: only the budget of the target limits the action."""

TARGETLESS_ACTIONS = frozenset({"hold", "notify"})
"""The actions of a rung that need no target."""


class Condition(StrEnum):
    """The condition that a playbook ends. It is evaluated again right before each action."""

    OVER_MEMORY_LIMIT = "over_memory_limit"
    """The worker's memory is above its limit."""
    MISSING = "missing"
    """Fewer processes of the worker run than expected, and it has not finished."""
    OVER_AGE_LIMIT = "over_age_limit"
    """The worker has exceeded its age limit or its limit of trials."""
    MEMORY_BELOW_FLOOR = "memory_below_floor"
    """The host (or its container) has less memory available than its floor."""
    GPU_HELD = "gpu_held"
    """Processes that belong to no worker hold a GPU."""
    INFERENCE_DOWN = "inference_down"
    """An inference server of the worker is dead or hung (not starting, paused, asleep or loading
    new weights)."""
    NO_PROGRESS = "no_progress"
    """The run has made no progress for longer than the stall limit of its current phase."""
    BRAKING = "braking"
    """The worker's own emergency brake repeatedly aborts the worker's current work, without freeing
    what the worker holds."""
    ANY = "any"
    """Any condition: only Alertmanager has to confirm that the alert still fires."""


class Verify(Section):
    """When an action counts as successful."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"within": "timeout", "steady": "stable_for"}

    timeout: Seconds = 60
    """How long the worker may take to become healthy after its start. The time that the exporter
    grants for starting (an engine that loads weights, a first step) is added."""
    stable_for: Seconds = 30
    """How long the worker must then stay healthy. A trainer with observed steps must have made
    a step, and need not stay so once it has made a new one, except where it was restarted for
    memory or its emergency brake."""
    serves: bool = False
    """Whether the worker's inference servers must have completed a token since its start."""
    progress: bool = False
    """Whether the worker's run must have made a step since its start."""


class Rung(Section):
    """One step of a ladder: an action, its target and its verification."""

    action: Literal["restart", "clean", "hold", "notify"] = "restart"
    """`restart`: restart the worker by its restart method. `clean`: terminate leftover processes
    that hold a GPU. `hold`: do nothing, and block all other actions on the worker (on the whole
    run, if the alert names no worker) while the alert fires. `notify`: notify the receivers that
    subscribe to `paged`, and continue with the next rung."""
    target: Literal["worker", "largest_worker", "trainer", "gpus"] = "worker"
    """`worker`: the worker that the alert names. `largest_worker`: the target that uses the most
    memory. `trainer`: the worker of the run with the role `trainer` in the exporter's file; it is
    restarted only if there is a complete checkpoint to resume from. `gpus`: the GPUs of the host,
    if `gpu_cleanup` is configured."""
    when: Literal["not_healed", "no_progress"] = "not_healed"
    """The required outcome of an earlier rung. `not_healed`: it did not end the condition.
    `no_progress`: it ended the condition, but the run still makes no step."""
    after: Annotated[Seconds, Field(gt=0)] | None = None
    """With `no_progress`: how long to wait for the run to continue without another action; default:
    the stall limit of the run's current phase."""
    tries: Annotated[int, Field(ge=1, le=MAX_TRIES)] = 1
    """Maximum number of attempts for one alert, within the budget of the target."""
    verify: Verify = Verify()
    """When the action counts as successful."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        touches = self.action not in TARGETLESS_ACTIONS
        if touches and (self.action == "clean") != (self.target == "gpus"):
            raise ValueError("action `clean` and target `gpus` require each other")
        if self.action == "notify" and self.tries > 1:
            raise LocatedError("action `notify` runs once for an alert", "tries")
        if self.after is not None and self.when != "no_progress":
            raise LocatedError("only allowed with `when: no_progress`", "after")
        return self


class Playbook(Section):
    """The response to one condition: one action, or a ladder of them in `rungs`.

    A rung is tried only when the rungs before it were not successful. After the last rung, the
    remediator calls an operator.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {"trouble": "condition"}

    condition: Condition
    """The condition that the exporter must still show for an action to start."""
    target: Literal["worker", "largest_worker", "trainer", "gpus"] = "worker"
    """Target of the single action; as in a rung."""
    action: Literal["restart", "clean", "hold", "notify"] = "restart"
    """The single action, limited only by the budget of its target; as in a rung."""
    verify: Verify = Verify()
    """When the single action counts as successful; as in a rung."""
    rungs: tuple[Rung, ...] = ()
    """The rungs of the ladder, in order, instead of a single action."""

    @cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """The rungs; a single action counts as one rung."""
        return self.rungs or (
            Rung(
                action=self.action,
                target=self.target,
                tries=1 if self.action == "notify" else MAX_TRIES,
                verify=self.verify,
            ),
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.rungs and (given := {"action", "target", "verify"} & self.model_fields_set):
            raise LocatedError("not allowed beside `rungs`: set it in a rung", min(given))
        cleans = self.condition is Condition.GPU_HELD
        for index, rung in enumerate(self.rungs or self.ladder):
            place = ("rungs", index) if self.rungs else ()
            about_gpus = {cleans, rung.target == "gpus", rung.action == "clean"}
            if rung.action not in TARGETLESS_ACTIONS and len(about_gpus) > 1:
                raise LocatedError(
                    "condition `gpu_held`, target `gpus` and action `clean` require each other",
                    *place,
                )
        return self

    @model_validator(mode="after")
    def _every_rung_is_reached(self) -> Self:
        for index, rung in enumerate(self.rungs):
            before = self.rungs[:index]
            if any(one.action == "hold" for one in before):
                raise LocatedError("never reached: a hold never ends", "rungs", index)
            if rung.when != "no_progress":
                continue
            if not before:
                raise LocatedError("never reached: there is no rung before it", "rungs", index)
            if all(one.verify.progress for one in before):
                message = "never reached: every rung before it already verifies progress"
                raise LocatedError(message, "rungs", index)
        return self


PLAYBOOKS: Mapping[str, Playbook] = {
    "restart_leaking_worker": Playbook(condition=Condition.OVER_MEMORY_LIMIT),
    "start_missing_worker": Playbook(condition=Condition.MISSING),
    "recycle_aged_worker": Playbook(condition=Condition.OVER_AGE_LIMIT),
    "restart_braking_worker": Playbook(condition=Condition.BRAKING),
    "relieve_memory": Playbook(condition=Condition.MEMORY_BELOW_FLOOR, target="largest_worker"),
    "hold_restarts": Playbook(condition=Condition.ANY, action="hold"),
    "clean_gpu": Playbook(
        condition=Condition.GPU_HELD,
        target="gpus",
        action="clean",
        # The action itself verifies that the processes ended and their GPU memory is free.
        verify=Verify(stable_for=2),
    ),
    "restart_inference": Playbook(
        condition=Condition.INFERENCE_DOWN,
        rungs=(
            Rung(tries=2, verify=Verify(timeout=180, stable_for=5, serves=True)),
            Rung(target="trainer", when="no_progress", verify=Verify(timeout=180, progress=True)),
        ),
    ),
    "restart_stalled_run": Playbook(
        condition=Condition.NO_PROGRESS, target="trainer", verify=Verify(timeout=180, progress=True)
    ),
}
"""The playbooks that the shipped rules name. A playbook of the same name in the file replaces
one."""


def with_shipped_condition(playbooks: Any) -> Any:
    """Adds the shipped condition to each playbook of a shipped name that sets none.

    Returns a value that is not a mapping unchanged; a later validator rejects it.
    """
    if not isinstance(playbooks, Mapping):
        return playbooks
    return {
        name: {"condition": PLAYBOOKS[name].condition, **content}
        if isinstance(content, Mapping) and name in PLAYBOOKS
        else content
        for name, content in playbooks.items()
    }
