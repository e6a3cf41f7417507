"""What the configuration says of how much of the past the journal keeps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainwarden_exporter.units import Bytes, Seconds
from trainwarden_exporter.yamlfile import Section

IDLE_SECONDS = 3600.0
"""So long what is over is kept however large the journal is, though nothing was done about it."""

DONE_SECONDS = 7 * 86400.0
"""So long where something was."""


class JournalLimits(Section):
    """How much of the past is kept. What is not over, or still counts, always is."""

    age: Annotated[Seconds, Field(ge=86400)] = 90 * 86400.0
    """How long what is over is kept; `report` tells of nothing older."""
    size: Annotated[Bytes, Field(ge=1 << 20)] = 512 << 20
    """Beyond this the oldest is let go sooner: first the alerts that nothing was done about, once
    they have been over for an hour, then what was done, once that is a week ago. The file does not
    shrink by that; its room is used again."""
