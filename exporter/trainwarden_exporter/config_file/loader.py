"""Reads a YAML file into a pydantic model; every error has its line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from trainwarden_exporter.config_file.types import NAME_PATTERN, NAME_RULE
from trainwarden_exporter.config_file.yaml_nodes import (
    Location,
    child,
    compose,
    dotted,
    line_of,
    plain_value,
)
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.similar_names import similar

__all__ = ["LocatedError", "Location", "Section", "dotted", "load", "parse", "unique_by"]

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

READ_SECONDS = 10.0
"""How long a read of a configuration waits for its disk."""

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Bytes. A configuration is never this long, but a log or checkpoint named by mistake is."""

UNKNOWN_KEY = "unknown key"

_MESSAGES = {
    error_type: message
    for message, error_types in {
        UNKNOWN_KEY: "extra_forbidden",
        "required key is missing": "missing",
        "expected a list": "tuple_type list_type set_type frozen_set_type",
        "expected a mapping": "model_type model_attributes_type dict_type",
        "expected text (put a number, yes or no in quotes)": "string_type",
        "expected a whole number": "int_type int_parsing int_from_float",
        "expected a smaller number": "int_parsing_size",
        "expected a number": "float_type float_parsing",
        "expected true or false": "bool_type bool_parsing",
        "expected a path": "path_type",
    }.items()
    for error_type in error_types.split()
}
"""Messages by pydantic's type of error."""


class Section(BaseModel):
    """Base class of all configuration sections: immutable; an unknown key is an error.

    A key without a value has its default.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {}
    """New names of renamed keys, for the error message; "" of a key that is gone."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        # the root model validates all sections; a validator of each would only take memory
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _reject_empty(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        known = cls.model_fields
        return {
            key: value for key, value in content.items() if value is not None or key not in known
        }


class LocatedError(ValueError):
    """Raised by a validator of a section to point at a location inside it."""

    def __init__(self, message: str, *location: int | str) -> None:
        super().__init__(message)
        self.location: Location = location


def unique_by(items: Sequence[T], field: str, noun: str, *location: int | str) -> Sequence[T]:
    """Returns `items`. Raises LocatedError where two of them have the same `field`."""
    seen: set[object] = set()
    for index, item in enumerate(items):
        if (value := getattr(item, field)) in seen:
            has = "is named" if field == "name" else f"has the {field}"
            raise LocatedError(f"another {noun} {has} {value}", *location, index, field)
        seen.add(value)
    return items


def load(path: Path, model: type[M]) -> M:
    """Reads the file at `path` into a `model`.

    `${NAME}` in a value is replaced by the environment variable; `$$` is a dollar sign. An empty
    file is an empty mapping.

    Raises ConfigError with all problems, each with its line.
    """
    return parse(read_text(path), path, model)


def read_text(path: Path) -> str:
    """Returns the text of the file at `path`. Raises ConfigError.

    Never blocks on a pipe, and for READ_SECONDS at most on a mount that does not answer.
    """
    try:
        content = bounded_call(path, partial(_read_content, path), seconds=READ_SECONDS)
    except OSError as error:
        raise ConfigError(Problem(path, None, "", error.strerror or str(error))) from error
    except ValueError as error:
        raise ConfigError(Problem(path, None, "", f"not a path: {error}")) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(Problem(path, None, "", "too large to be a configuration"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(Problem(path, line, "", f"not UTF-8 text: {error.reason}")) from error


def _read_content(path: Path) -> bytes:
    # Without O_NONBLOCK, opening a pipe without a writer never returns.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a Path cannot be opened with flags
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ConfigError(Problem(path, None, "", "not a regular file"))
        return file.read(MAX_FILE_BYTES + 1)


def parse(
    text: str, path: Path, model: type[M], *, environment: Mapping[str, str] | None = None
) -> M:
    """Like `load`, for `text`; `path` is used in messages and for relative paths."""
    file = ParsedFile(text, path, model, environment)
    try:
        return file.validate(file.content)
    except ValidationError as error:
        found = [problem for _, problem in file.located_problems(error)]
        if _correct_keys(file.root, model, error):
            # Checks across keys run only where all keys are known.
            try:
                file.validate(plain_value(file.root, path, file.variables))
            except ValidationError as hidden:
                also = {problem for _, problem in file.located_problems(hidden)}
                found += also - set(found)
        raise ConfigError(*sorted(found, key=lambda one: one.line or 0)) from error


class ParsedFile(Generic[M]):
    """A YAML file that is read into a model. Raises ConfigError if it is not YAML."""

    def __init__(
        self, text: str, path: Path, model: type[M], environment: Mapping[str, str] | None = None
    ) -> None:
        self.variables = os.environ if environment is None else environment
        self.root = compose(text, path)
        self.content = plain_value(self.root, path, self.variables)
        self._path = path
        self._model = model

    @classmethod
    def read(cls, path: Path, model: type[M]) -> ParsedFile[M]:
        """Reads the file at `path`. Raises ConfigError."""
        return cls(read_text(path), path, model)

    def validate(self, content: Any) -> M:
        """Returns `content` as the model. Raises ValidationError."""
        return self._model.model_validate(content, context={"folder": self._path.parent})

    def located_problems(self, error: ValidationError) -> Iterator[tuple[Location, Problem]]:
        """Yields the problems of `error`, each with its place in the file, from top to bottom."""
        return _problems(error, self._path, self.root, self._model)

    def correct_key(self, location: Location) -> str | None:
        """Renames the unknown key at `location` to the known key that it resembles, and returns it.

        `content` stays as it is.
        """
        meant = _similar_key(self._model, location)
        return meant if meant is not None and _rename(self.root, location, meant) else None


def _correct_keys(root: yaml.Node, model: type[BaseModel], error: ValidationError) -> bool:
    """Replaces each unknown key by the known key that it resembles.

    Returns whether the file then has no wrong key; other errors change nothing.
    """
    for detail in error.errors(include_url=False):
        if detail["type"] != "extra_forbidden":
            return False
        *parents, key = detail["loc"]
        meant = _similar_key(model, detail["loc"])
        if meant is None or not _rename(root, (*parents, key), meant):
            return False
    return True


def _rename(root: yaml.Node, location: Location, name: str) -> bool:
    """Renames the key at `location`. Returns False where there is a key of that name already."""
    *parents, key = location
    node: yaml.Node = root
    for part in parents:
        if (below := child(node, part)) is not None:
            node = below[0]
    if not isinstance(node, yaml.MappingNode) or child(node, name):
        return False
    for known, _ in node.value:
        if known.value == key:
            known.value = name
    return True


def problem_at(path: Path, message: str, *location: int | str) -> Problem:
    """Returns a problem at `location` of a valid file. Raises ConfigError if it is unreadable."""
    found, line = _locate(compose(read_text(path), path), location, absent=True)
    return Problem(path, line, dotted(found), message)


def _problems(
    error: ValidationError, path: Path, root: yaml.Node, model: type[BaseModel]
) -> Iterator[tuple[Location, Problem]]:
    """Yields one problem for each location in the file, from top to bottom.

    The messages of all members of a union about one value are one problem.
    """
    messages: dict[tuple[Location, int], list[str]] = {}
    for detail in error.errors(include_url=False):
        cause = detail.get("ctx", {}).get("error")
        location: Location = detail["loc"]
        absent = detail["type"] == "missing"
        if isinstance(cause, LocatedError):
            location += cause.location
            absent = bool(cause.location)
        found, line = _locate(root, location, absent=absent)
        message = _message(detail, cause)
        if detail["type"] == "extra_forbidden":
            if (new_name := _new_name(model, found)) is not None:
                message = f"renamed to {new_name}" if new_name else "gone: nothing used it"
            elif meant := _similar_key(model, found):
                message = f"{message} (did you mean {meant}?)"
        at_location = messages.setdefault((found, line), [])
        if message not in at_location:
            at_location.append(message)
    for (found, line), at_location in sorted(messages.items(), key=lambda item: item[0][1]):
        yield found, Problem(path, line, dotted(found), "; or: ".join(at_location))


def _new_name(model: type[BaseModel], location: Location) -> str | None:
    """Returns the new name of the key at `location` if it was renamed."""
    *parents, key = location
    tables = (one.renamed_keys for one in _sections_at(model, parents))
    return next((table[key] for table in tables if isinstance(key, str) and key in table), None)


def _similar_key(model: type[BaseModel], location: Location) -> str | None:
    """Returns the known key that the unknown key at `location` resembles."""
    names = {
        field.alias or name
        for section in _sections_at(model, location[:-1])
        for name, field in section.model_fields.items()
    }
    return similar(str(location[-1]), names)


def _sections_at(model: type[BaseModel], location: Sequence[int | str]) -> Sequence[type[Section]]:
    """Returns the models of the section at `location`: several for a union."""
    sections: Sequence[type[BaseModel]] = [model]
    for part in location:
        fields = [one.model_fields[str(part)] for one in sections if part in one.model_fields]
        if fields:  # else an index, or the key of a mapping of sections
            sections = [one for field in fields for one in _sections_of(field.annotation)]
    return [one for one in sections if issubclass(one, Section)]


def _sections_of(annotation: object) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_of(argument)


def _message(detail: ErrorDetails, cause: object) -> str:
    if isinstance(cause, ValueError | AssertionError):
        return str(cause)
    if detail["type"] in _MESSAGES:
        return _MESSAGES[detail["type"]]
    if detail.get("ctx", {}).get("pattern") == NAME_PATTERN:
        return NAME_RULE
    message = detail["msg"].removeprefix("Input ")
    if message.startswith("should be '"):  # one of several words
        return message.replace("should be", "expected", 1)
    return message[:1].lower() + message[1:]


def _locate(root: yaml.Node, location: Location, *, absent: bool) -> tuple[Location, int]:
    """Returns the parts of `location` that exist in the file, and the line.

    pydantic also adds the names of union members and validators; they are skipped. With `absent`,
    the last part may be a missing key: the line is that of the mapping without it.
    """
    node, line = root, line_of(root)
    parts: list[int | str] = []
    for index, part in enumerate(location):
        found = child(node, part)
        if found is not None:
            node, line = found
        if found is not None or (absent and index == len(location) - 1):
            parts.append(part)
    return tuple(parts), line
