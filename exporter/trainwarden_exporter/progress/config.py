"""What exporter.yml says of a run's progress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainwarden_exporter.layouts.base import Phase, ProgressFile
from trainwarden_exporter.layouts.places import Place
from trainwarden_exporter.progress.limits import Limits
from trainwarden_exporter.units import Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Span = Annotated[Seconds, Field(gt=0)]


class PhaseLimits(Section):
    """How long a run may be in a phase in which it is not expected to make steps."""

    saving: Span = 1800.0
    """Writing a checkpoint."""

    evaluating: Span = 3600.0
    """Measuring how good it is."""

    updating_weights: Span = 900.0
    """Handing new weights to the inference servers."""

    waiting_for_rollouts: Span = 1800.0
    """Waiting for a batch; rules of their own say much sooner why none comes."""


class ProgressFileConfig(Section):
    name: Name
    """Part of the label `source`; one of the framework's own of this name is replaced."""

    file: Text
    """The file, relative to the run's path; it may hold names in braces and globs as the
    framework's own do. Of several that match, the newest is read."""

    kind: Literal["json", "text", "jsonl", "csv"]
    """How it is read: `jsonl` and `csv` from their end."""

    step: Text
    """For `text` a regular expression with the group `step`; else the key, parts joined by `/`."""

    total: Annotated[str, StringConstraints(max_length=500)] = ""
    """The key of the number of steps in all; for `text`, a regular expression with `total`."""

    step_offset: int = 0
    """What to add to have the steps done, counted from one."""

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        try:
            Place(self.file)
        except ValueError as error:
            raise MisplacedError(str(error), "file") from error
        if self.kind == "text":
            _check_pattern(self.step, "step")
            if self.total:
                _check_pattern(self.total, "total")
        return self

    def source(self) -> ProgressFile:
        """As a layout says it."""
        return ProgressFile(**self.model_dump())


class ProgressConfig(Section):
    """When a run counts as stalled, and from where its step is read besides its log."""

    stall_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 5.0
    """How many times the usual step time may pass without a step. Of a run that makes none, a
    search, the longest time of late between two signs, as the ends of trials, counts as usual."""

    stall_floor: Span = 60.0
    """Time that may always pass without a step, however short the steps are."""

    restart_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 25.0
    """How many times the usual step time must pass without a step until that alone is reason enough
    to restart the run. It counts where the framework does not tell when it evaluates, as the
    silence may be an evaluation; where something else tells of trouble, `stall_factor` decides."""

    restart_floor: Span = 1800.0
    """Time that must pass at least until then, however short the steps are."""

    first_step_limit: Span = 1800.0
    """Time that may pass from a start to the first step, and until enough steps are known to say
    what is usual."""

    phase_limits: PhaseLimits = PhaseLimits()
    """Time that may pass in a phase in which no step is expected."""

    total_steps: Annotated[int, Field(gt=0)] | None = None
    """Steps that the run makes in all, where it does not say so itself."""

    files: tuple[ProgressFileConfig, ...] = ()
    """Files from which the step is read, beside those of the framework."""

    @model_validator(mode="after")
    def _names_tell_files_apart(self) -> Self:
        seen: set[str] = set()
        for index, file in enumerate(self.files):
            if file.name in seen:
                raise MisplacedError(f"another file is named {file.name}", "files", index, "name")
            seen.add(file.name)
        return self

    def limits(self) -> Limits:
        """What decides whether the run is stalled."""
        spans: Mapping[str, float] = self.phase_limits.model_dump()
        return Limits(
            factor=self.stall_factor,
            floor=self.stall_floor,
            first_step=self.first_step_limit,
            restart_factor=self.restart_factor,
            restart_floor=self.restart_floor,
            phases={Phase(name): seconds for name, seconds in spans.items()},
        )


def _check_pattern(text: str, group: str) -> None:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise MisplacedError(f"not a regular expression: {error}", group) from error
    if group not in pattern.groupindex:
        raise MisplacedError(f"has no group (?P<{group}>…)", group)
