"""How a worker is asked for a last checkpoint before it is restarted."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainwarden_exporter.units import Seconds
from trainwarden_exporter.yamlfile import Section
from trainwarden_remediator.means.base import Argument


class SaveRequest(Section):
    """How a worker is asked to save before it is restarted: by a signal, or by a command."""

    signal: Literal["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGALRM"] | None = None
    """Sent to the worker's own processes, not to those below them, and only to one that handles it:
    one that does not would end of it."""
    command: Annotated[tuple[Argument, ...], Field(min_length=1)] | None = None
    """Or run, as a list that no shell reads."""
    within: Annotated[Seconds, Field(gt=0)] = 120
    """How long a newer complete checkpoint is waited for; then it is restarted all the same."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.signal is None) == (self.command is None):
            raise ValueError("give either a signal or a command")
        return self
