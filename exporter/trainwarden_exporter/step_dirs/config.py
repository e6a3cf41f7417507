"""Configuration of a folder of step directories: location and completeness rule."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Protocol, Self, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, model_validator

from trainwarden_exporter import frameworks
from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import Seconds
from trainwarden_exporter.frameworks import completeness_rules
from trainwarden_exporter.frameworks.base import Framework
from trainwarden_exporter.frameworks.completeness_rules import CompletenessRule
from trainwarden_exporter.frameworks.path_resolution import PathTemplate


def _template(text: str) -> str:
    PathTemplate(text)  # raises ValueError
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def _pattern_with(group: str, text: str) -> str:
    if group not in re.compile(_pattern(text)).groupindex:
        raise ValueError(f"has no group (?P<{group}>…)")
    return text


def _relative_name(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("not a name inside the folder")
    return text


_Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]

Template = Annotated[_Text, AfterValidator(_template)]
"""A path with names in braces and globs; see `frameworks.path_templates`."""

NamePattern = Annotated[_Text, AfterValidator(_pattern)]
"""A regular expression for a full name, with the group `step` if the name contains a step."""

StepPattern = Annotated[_Text, AfterValidator(partial(_pattern_with, "step"))]
"""A regular expression with the group `step`."""

RankPattern = Annotated[_Text, AfterValidator(partial(_pattern_with, "rank"))]
"""A regular expression with the group `rank`."""

FileName = Annotated[_Text, AfterValidator(_relative_name)]
"""A relative path inside the folder."""

_RULES = ("marker", "tracker", "renamed", "json", "listed", "settled")
_DETAILS = {
    "none_of": ("marker", "json"),
    "last": ("marker",),
    "pattern": ("tracker",),
    "key": ("json",),
    "settled_for": ("settled",),
}


class CompleteConfig(Section):
    """How a complete entry is recognised; exactly one of the first six settings is required."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"seconds": "settled_for"}

    marker: Annotated[tuple[_Text, ...], Field(min_length=1)] | None = None
    """Files of the entry that are written last, as shell patterns; all must exist."""

    tracker: FileName | None = None
    """File beside the entries that names the newest complete step."""

    renamed: bool = False
    """Entries are written under a temporary name and renamed when complete."""

    json_file: Annotated[FileName | None, Field(alias="json")] = None
    """JSON file of the entry, written last, that contains the step of the entry."""

    listed: FileName | None = None
    """JSON file beside the entries that lists the names of the complete ones."""

    settled: Annotated[tuple[_Text, ...], Field(min_length=1)] | None = None
    """Files that must exist, for frameworks that leave no proof of completeness; an entry is
    complete once nothing has changed for a while.
    """

    none_of: tuple[_Text, ...] = ()
    """With `marker` or `json`: files that exist while the entry is incomplete."""

    last: bool = False
    """With `marker`: no file may be newer than the marker, for entries that are overwritten."""

    pattern: StepPattern | None = None
    """With `tracker`: regular expression for the step in it; default: a single number."""

    key: _Text | None = None
    """With `json`: key of the step."""

    settled_for: Annotated[Seconds, Field(gt=0)] | None = None
    """With `settled`: time without changes, default 30 s."""

    @model_validator(mode="after")
    def _has_one_rule(self) -> Self:
        given = [name for name in _RULES if self._value(name)]
        if len(given) != 1:
            raise ValueError(f"exactly one is required of {', '.join(_RULES)}")
        for detail, owners in _DETAILS.items():
            if self._value(detail) and given[0] not in owners:
                raise LocatedError(f"requires {' or '.join(owners)}", detail)
        if given[0] == "json" and self.key is None:
            raise LocatedError("required with json", "key")
        return self

    def rule(self) -> CompletenessRule:
        """Returns the equivalent layout rule."""
        if self.marker is not None:
            return completeness_rules.MarkerRule(self.marker, self.none_of, self.last)
        if self.tracker is not None:
            return completeness_rules.TrackerRule(
                self.tracker, *([self.pattern] if self.pattern else [])
            )
        if self.json_file is not None and self.key is not None:
            return completeness_rules.JsonStepRule(self.json_file, self.key, self.none_of)
        if self.listed is not None:
            return completeness_rules.ListedRule(self.listed)
        if self.settled is not None:
            return completeness_rules.SettledRule(
                self.settled, *([self.settled_for] if self.settled_for else [])
            )
        return completeness_rules.RenamedRule()

    def _value(self, name: str) -> object:
        return getattr(self, "json_file" if name == "json" else name)


_INVALID = object()
"""Marks an invalid path."""


class FolderConfig(Protocol):
    """A configured folder of step directories."""

    @property
    def name(self) -> str: ...
    @property
    def templates(self) -> Sequence[tuple[str, str]]:
        """Returns its templates, each with its key."""


P = TypeVar("P", bound=FolderConfig)


def check_folders(folders: Sequence[P], info: ValidationInfo, known: Sequence[str]) -> None:
    """Raises LocatedError for a duplicate folder, or for one without a location.

    `known` are the names of those of the framework.
    """
    unique_by(folders, "name", "one")
    if info.data.get("path", _INVALID) is not None:
        return
    reason = "relative to the run's path, which is not configured"
    for index, folder in enumerate(folders):
        if folder.name in known:
            raise LocatedError(reason, index, "name")
        for key, template in folder.templates:
            if not template.startswith("/"):
                raise LocatedError(reason, index, *key.split("."))


def framework_of(info: ValidationInfo) -> Framework | None:
    """Returns the layout of the run being validated; None if its name is invalid."""
    name = info.data.get("framework")
    return None if name is None else frameworks.get_framework(name)
