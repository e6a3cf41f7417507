"""Configuration of a run's progress."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import Name, Seconds
from trainwarden_exporter.frameworks.base import Phase, PhaseLimit, ProgressFile
from trainwarden_exporter.frameworks.path_resolution import PathTemplate
from trainwarden_exporter.progress.stall_limits import StallLimits

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Span = Annotated[Seconds, Field(gt=0)]


class PhaseLimits(Section):
    """Maximum time in phases without steps."""

    saving: Span = 1800.0
    """Writing a checkpoint, until it is complete."""

    evaluating: Span = 3600.0
    """Running an evaluation."""

    updating_weights: Span = 900.0
    """Transferring new weights to the inference servers."""

    waiting_for_rollouts: Span = 1800.0
    """Waiting for rollouts; other rules report the cause much earlier."""


class ProgressFileConfig(Section):
    name: Name
    """Part of the label `source`; a name of the framework's own files replaces that file."""

    file: Text
    """File, relative to the run's path; names in braces and globs are allowed. Of several
    matches, the newest is read."""

    kind: Literal["json", "text", "jsonl", "csv"]
    """Format; `jsonl` and `csv` are read from the end."""

    step: Text
    """For `text` a regular expression with the group `step`; else the key, parts joined by `/`."""

    total: Annotated[str, StringConstraints(max_length=500)] = ""
    """Key of the total number of steps; for `text`, a regular expression with the group `total`."""

    step_offset: int = 0
    """Number added to the step to get completed steps, counted from one."""

    @model_validator(mode="after")
    def _check_patterns(self) -> Self:
        try:
            PathTemplate(self.file)
        except ValueError as error:
            raise LocatedError(str(error), "file") from error
        if self.kind == "text":
            _check_pattern(self.step, "step")
            if self.total:
                _check_pattern(self.total, "total")
        return self

    def source(self) -> ProgressFile:
        """Returns the equivalent layout."""
        return ProgressFile(**self.model_dump())


class ProgressConfig(Section):
    """Stall limits, and sources of the step besides the log."""

    stall_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 5.0
    """Multiple of the usual step time that may pass without a step. For a run without steps,
    such as a search, the longest recent time between two signs of progress, such as ends of
    trials, counts as usual."""

    stall_floor: Span = 60.0
    """Minimum stall limit, however short the steps are."""

    restart_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 25.0
    """Multiple of the usual step time without a step that alone justifies a restart. Applies if
    the framework does not log evaluations, because the silence may be an evaluation; with any
    other symptom, `stall_factor` applies."""

    restart_floor: Span = 1800.0
    """Minimum of that restart limit, however short the steps are."""

    first_step_limit: Span = 1800.0
    """Maximum time from a start to the first step, and until enough steps are known to derive
    the usual time."""

    phase_limits: PhaseLimits = PhaseLimits()
    """Maximum time in phases without steps."""

    ettr_minimum: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Effective training time ratio (ETTR) over six hours under which TrainingTimeLost warns: the
    share of the time in which the run makes new steps, evaluates and saves."""

    total_steps: Annotated[int, Field(gt=0)] | None = None
    """Total steps of the run, if the run does not report them."""

    files: tuple[ProgressFileConfig, ...] = ()
    """Files to read the step from, in addition to those of the framework."""

    @model_validator(mode="after")
    def _check_file_names(self) -> Self:
        unique_by(self.files, "name", "file", "files")
        return self

    def limits(self, of_framework: Iterable[PhaseLimit] = ()) -> StallLimits:
        """Returns the stall limits: as configured, else those `of_framework`, else the defaults."""
        spans: dict[str, float] = self.phase_limits.model_dump()
        configured = self.phase_limits.model_fields_set
        spans |= {
            limit.phase.value: limit.seconds
            for limit in of_framework
            if limit.phase.value not in configured
        }
        return StallLimits(
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
        raise LocatedError(f"not a regular expression: {error}", group) from error
    if group not in pattern.groupindex:
        raise LocatedError(f"has no group (?P<{group}>…)", group)
