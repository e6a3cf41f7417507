"""What the remediator tells of itself, as it comes over the wire: checked, and of bounded size."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError

from trainwarden_exporter.sightings import Tone

MOST = 100
"""Alerts, or actions, that are taken from one answer."""

_Text = Annotated[str, StringConstraints(max_length=2000)]
_Moment = Annotated[FiniteFloat, Field(ge=0, le=1e11)]


class _Told(BaseModel):
    # Keys of a newer remediator are of no concern.
    model_config = ConfigDict(frozen=True, extra="ignore")


class ToldAlert(_Told):
    """An alert that the remediator watches; `since` is a Unix time."""

    alert: _Text
    run: _Text
    worker: _Text
    since: _Moment
    tone: Tone
    verdict: _Text
    """What it last decided about it, in a word or two,"""
    reason: _Text
    """and why."""


class ToldAction(_Told):
    """Something the remediator did; `at` is a Unix time."""

    run: _Text
    worker: _Text
    at: _Moment
    tone: Tone
    doing: _Text
    outcome: _Text


class Told(_Told):
    """How the remediator stands. The alerts are the oldest first, the actions the newest first."""

    mode: Literal["observe", "act"]
    tone: Tone
    verdict: _Text
    open_alerts: Annotated[int, Field(ge=0)]
    """How many it watches; `alerts` may be fewer."""
    alerts: Annotated[tuple[ToldAlert, ...], Field(max_length=MOST)]
    actions: Annotated[tuple[ToldAction, ...], Field(max_length=MOST)]


def parse_told(body: bytes) -> Told:
    """What `body` (JSON) tells. Raises ValueError, which repeats nothing of it."""
    try:
        return Told.model_validate_json(body)
    except ValidationError:
        raise ValueError("its answer is not understood") from None
