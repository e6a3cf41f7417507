"""What exporter.yml says of a folder of entries: where it lies, and what proves one complete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Protocol, Self, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, model_validator

from trainwarden_exporter import layouts
from trainwarden_exporter.layouts import proofs
from trainwarden_exporter.layouts.base import Layout
from trainwarden_exporter.layouts.places import Place
from trainwarden_exporter.layouts.proofs import Proof
from trainwarden_exporter.units import Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section


def _template(text: str) -> str:
    Place(text)  # raises ValueError
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def _pattern_of_step(text: str) -> str:
    if "step" not in re.compile(_pattern(text)).groupindex:
        raise ValueError("has no group (?P<step>…)")
    return text


def _pattern_of_rank(text: str) -> str:
    if "rank" not in re.compile(_pattern(text)).groupindex:
        raise ValueError("has no group (?P<rank>…)")
    return text


def _plain(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("not a name inside the folder")
    return text


_Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]

Template = Annotated[_Text, AfterValidator(_template)]
"""A path with names in braces and globs; see `layouts.templates`."""

EntryPattern = Annotated[_Text, AfterValidator(_pattern)]
"""A regular expression for a whole name; with the group `step` where a number stands in it."""

StepPattern = Annotated[_Text, AfterValidator(_pattern_of_step)]
"""A regular expression with the group `step`."""

RankPattern = Annotated[_Text, AfterValidator(_pattern_of_rank)]
"""A regular expression with the group `rank`."""

FileName = Annotated[_Text, AfterValidator(_plain)]
"""A path inside the folder that it is about."""

_PROOFS = ("marker", "tracker", "renamed", "json", "listed", "settled")
_DETAILS = {
    "none_of": ("marker", "json"),
    "last": ("marker",),
    "pattern": ("tracker",),
    "key": ("json",),
    "seconds": ("settled",),
}


class CompleteConfig(Section):
    """What proves an entry complete: one of the first six."""

    marker: Annotated[tuple[_Text, ...], Field(min_length=1)] | None = None
    """Files of the entry that are written last, as a shell matches names; all must be there."""

    tracker: FileName | None = None
    """A file beside the entries that names the newest complete step."""

    renamed: bool = False
    """It is written under another name, and has its own once it is whole."""

    json_file: Annotated[FileName | None, Field(alias="json")] = None
    """A JSON file of the entry, written last, that holds the entry's own step."""

    listed: FileName | None = None
    """A JSON file beside the entries in which the names of the complete ones stand."""

    settled: Annotated[tuple[_Text, ...], Field(min_length=1)] | None = None
    """Files that must be there, for what leaves no proof: then nothing may change for a while."""

    none_of: tuple[_Text, ...] = ()
    """With `marker` or `json`: files that are there while it is incomplete."""

    last: bool = False
    """With `marker`: no file may be newer than the marker, for entries that are written again."""

    pattern: StepPattern | None = None
    """With `tracker`: a regular expression for the step in it; a lone number when not given."""

    key: _Text | None = None
    """With `json`: under which key the step stands."""

    seconds: Annotated[Seconds, Field(gt=0)] | None = None
    """With `settled`: for how long nothing may change, 30 s when not given."""

    @model_validator(mode="after")
    def _is_one_proof(self) -> Self:
        given = [name for name in _PROOFS if self._value(name)]
        if len(given) != 1:
            raise ValueError(f"exactly one is needed of {', '.join(_PROOFS)}")
        for detail, owners in _DETAILS.items():
            if self._value(detail) and given[0] not in owners:
                raise MisplacedError(f"means nothing without {' or '.join(owners)}", detail)
        if given[0] == "json" and self.key is None:
            raise MisplacedError("needed with json", "key")
        return self

    def proof(self) -> Proof:
        """As a layout says it."""
        if self.marker is not None:
            return proofs.Marker(self.marker, self.none_of, self.last)
        if self.tracker is not None:
            return proofs.Tracker(self.tracker, *([self.pattern] if self.pattern else []))
        if self.json_file is not None and self.key is not None:
            return proofs.JsonStep(self.json_file, self.key, self.none_of)
        if self.listed is not None:
            return proofs.Listed(self.listed)
        if self.settled is not None:
            return proofs.Settled(self.settled, *([self.seconds] if self.seconds else []))
        return proofs.Renamed()

    def _value(self, name: str) -> object:
        return getattr(self, "json_file" if name == "json" else name)


_WRONG = object()
"""Stands for a path that was given and is none."""


class Placed(Protocol):
    """A configured folder of entries."""

    @property
    def name(self) -> str: ...
    @property
    def templates(self) -> Sequence[tuple[str, str]]:
        """Its templates, each with the key it is given under."""


P = TypeVar("P", bound=Placed)


def check_places(places: Sequence[P], info: ValidationInfo, known: Sequence[str]) -> None:
    """Raise MisplacedError for one that cannot be told from another, or lies nowhere.

    `known` are the names of those of the framework.
    """
    seen: set[str] = set()
    for index, place in enumerate(places):
        if place.name in seen:
            raise MisplacedError(f"another one is named {place.name}", index, "name")
        seen.add(place.name)
        if info.data.get("path", _WRONG) is None:
            if place.name in known:
                raise MisplacedError("lies below the run's path, which is not given", index, "name")
            for key, template in place.templates:
                if not template.startswith("/"):
                    reason = "relative to the run's path, which is not given"
                    raise MisplacedError(reason, index, *key.split("."))


def layout_of(info: ValidationInfo) -> Layout | None:
    """The layout of the run that is being validated; None where its name is wrong."""
    name = info.data.get("framework")
    return None if name is None else layouts.layout(name)
