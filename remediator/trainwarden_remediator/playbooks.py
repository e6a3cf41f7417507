"""Playbooks: what is tried against each kind of trouble, in which order, and what proves it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trainwarden_exporter.units import Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section

MOST_TRIES = 100
"""More than any budget allows: tried for as long as the budget of the target lasts."""


UNTOUCHING = frozenset({"hold", "notify"})
"""What a rung may do without a target."""


class Trouble(StrEnum):
    """What a playbook is there to end. It is looked for again just before anything is done."""

    OVER_MEMORY_LIMIT = "over_memory_limit"
    """The worker's resident memory is above its limit."""
    MISSING = "missing"
    """Fewer processes of the worker run than expected, and it has not finished."""
    OVER_AGE_LIMIT = "over_age_limit"
    """The worker has run for longer than its age limit, or has ended as many trials as it may."""
    MEMORY_BELOW_FLOOR = "memory_below_floor"
    """The box (or its container) has less memory available than its floor."""
    GPU_HELD = "gpu_held"
    """Processes of no worker hold a GPU."""
    INFERENCE_DOWN = "inference_down"
    """An inference server of the worker is dead or hung, and not merely starting, paused, asleep or
    taking new weights."""
    NO_PROGRESS = "no_progress"
    """The run has shown no sign of progress for longer than it may in its present phase."""
    BRAKING = "braking"
    """The worker's own emergency brake ends again and again what the worker has begun, and cannot
    free what the worker holds."""
    ANY = "any"
    """Whatever the alert says; only Alertmanager is asked again."""


class Verify(Section):
    """How a healed worker is told from one that merely started."""

    within: Seconds = 60
    """The worker must be seen healthy before this long has passed since it was started. What the
    exporter grants to a start (of an engine that loads weights, to a first step) is added."""
    steady: Seconds = 5
    """It must stay so for this long."""
    serves: bool = False
    """Whether its inference servers must have answered with a real token since."""
    progress: bool = False
    """Whether its run must have made a step since."""


class Rung(Section):
    """One thing to try."""

    action: Literal["restart", "clean", "hold", "notify"] = "restart"
    """`restart` the worker by its own means; `clean` the GPUs of leftovers; `hold`: do nothing,
    and let nothing else be done to that worker (to the whole run, if the alert names none) while
    the alert lasts; or `notify`: call a person, by the receivers of `notify` that are told when one
    is `asked`, and go on with the next rung."""
    target: Literal["worker", "largest_worker", "trainer", "gpus"] = "worker"
    """The worker the alert names; the configured target that holds the most memory; the worker of
    its run that makes the steps (by its role `trainer` in the exporter's file), which is restarted
    only where there is a complete checkpoint to resume from; or the GPUs of the box, if
    `gpu_cleanup` allows it."""
    when: Literal["not_healed", "no_progress"] = "not_healed"
    """What must have become of an earlier rung: it did not heal; or it healed what it was there
    for, and the run makes no step all the same."""
    after: Annotated[Seconds, Field(gt=0)] | None = None
    """With `no_progress`: how long the run may take to go on by itself; what the exporter allows it
    in its present phase when not given."""
    tries: Annotated[int, Field(ge=1, le=MOST_TRIES)] = 1
    """How often it is tried for one alert, the budget of its target permitting."""
    verify: Verify = Verify()
    """What must be seen after it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        touches = self.action not in UNTOUCHING
        if touches and (self.action == "clean") != (self.target == "gpus"):
            raise ValueError("clean and gpus go together, and with nothing else")
        if self.action == "notify" and self.tries > 1:
            raise MisplacedError("a person is called once for an alert", "tries")
        if self.after is not None and self.when != "no_progress":
            raise MisplacedError("means something only with `when: no_progress`", "after")
        return self


class Playbook(Section):
    """What is done about one kind of trouble: one action, or a ladder of them in `rungs`.

    A rung is tried only when those before it have not helped. After the last, a person is called.
    """

    trouble: Trouble
    """What must still be seen by the exporter for anything to be done."""
    target: Literal["worker", "largest_worker", "trainer", "gpus"] = "worker"
    """Of the one action; as in a rung."""
    action: Literal["restart", "clean", "hold", "notify"] = "restart"
    """The one action, tried for as long as the budget of its target lasts; as in a rung."""
    verify: Verify = Verify()
    """What must be seen after it; as in a rung."""
    rungs: tuple[Rung, ...] = ()
    """What to try, in this order, in place of one action."""

    @cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """The rungs, also where there is but one action."""
        return self.rungs or (
            Rung(
                action=self.action,
                target=self.target,
                tries=1 if self.action == "notify" else MOST_TRIES,
                verify=self.verify,
            ),
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.rungs and (given := {"action", "target", "verify"} & self.model_fields_set):
            raise MisplacedError("belongs into a rung where there are `rungs`", min(given))
        cleans = self.trouble is Trouble.GPU_HELD
        for index, rung in enumerate(self.rungs or self.ladder):
            place = ("rungs", index) if self.rungs else ()
            about = {cleans, rung.target == "gpus", rung.action == "clean"}
            if rung.action not in UNTOUCHING and len(about) > 1:
                raise MisplacedError(
                    "gpu_held, gpus and clean go together, and with nothing else", *place
                )
        return self

    @model_validator(mode="after")
    def _every_rung_is_reached(self) -> Self:
        for index, rung in enumerate(self.rungs):
            before = self.rungs[:index]
            if any(one.action == "hold" for one in before):
                raise MisplacedError("never reached: a hold has no end of its own", "rungs", index)
            if rung.when != "no_progress":
                continue
            if not before:
                raise MisplacedError("never reached: there is no rung before it", "rungs", index)
            if all(one.verify.progress for one in before):
                said = "never reached: what heals before it has made progress"
                raise MisplacedError(said, "rungs", index)
        return self


PLAYBOOKS: Mapping[str, Playbook] = {
    "restart_leaking_worker": Playbook(trouble=Trouble.OVER_MEMORY_LIMIT),
    "start_missing_worker": Playbook(trouble=Trouble.MISSING),
    "recycle_aged_worker": Playbook(trouble=Trouble.OVER_AGE_LIMIT),
    "restart_braking_worker": Playbook(trouble=Trouble.BRAKING),
    "relieve_memory": Playbook(trouble=Trouble.MEMORY_BELOW_FLOOR, target="largest_worker"),
    "hold_restarts": Playbook(trouble=Trouble.ANY, action="hold"),
    "clean_gpu": Playbook(
        trouble=Trouble.GPU_HELD,
        target="gpus",
        action="clean",
        # The action itself has seen them end and their memory come back.
        verify=Verify(steady=2),
    ),
    "restart_inference": Playbook(
        trouble=Trouble.INFERENCE_DOWN,
        rungs=(
            Rung(tries=2, verify=Verify(within=180, serves=True)),
            Rung(
                target="trainer",
                when="no_progress",
                verify=Verify(within=180, steady=0, progress=True),
            ),
        ),
    ),
    "restart_stalled_run": Playbook(
        trouble=Trouble.NO_PROGRESS,
        target="trainer",
        verify=Verify(within=180, steady=0, progress=True),
    ),
}
"""The playbooks that the shipped rules name; one of the same name in the file takes its place."""


def with_known_trouble(playbooks: Any) -> Any:
    """`playbooks` as a file gives them, those of a shipped name with its trouble if they say none.

    What is no mapping comes back as it is, for others to refuse.
    """
    if not isinstance(playbooks, Mapping):
        return playbooks
    return {
        name: {"trouble": PLAYBOOKS[name].trouble, **content}
        if isinstance(content, Mapping) and name in PLAYBOOKS
        else content
        for name, content in playbooks.items()
    }
