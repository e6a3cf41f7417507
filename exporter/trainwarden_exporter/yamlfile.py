"""Reads a YAML file into a pydantic model and says of every error in which line it is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.yamlnodes import Location, child, compose, dotted, line_of, plain_value

__all__ = ["Location", "MisplacedError", "Section", "dotted", "load", "parse"]

M = TypeVar("M", bound=BaseModel)

LARGEST_FILE = 4 * 1024 * 1024
"""Bytes; no configuration is as long, but a log or a checkpoint named by mistake is."""

_WORDS = {
    "extra_forbidden": "unknown key",
    "missing": "required, but not there",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "set_type": "expected a list",
    "frozen_set_type": "expected a list",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "string_type": "expected text (a number, yes or no is text when it stands in quotes)",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_parsing_size": "expected a smaller number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "path_type": "expected a path",
}


class Section(BaseModel):
    """Base of every part of a configuration: immutable, and an unknown key is an error.

    A key with nothing after it counts as not given.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        # a part is validated by what the whole is made into; one of its own is memory for nothing
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_not_given(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        known = cls.model_fields
        return {
            key: value for key, value in content.items() if value is not None or key not in known
        }


class MisplacedError(ValueError):
    """Raised by a validator of a whole section to point at the place inside it that is wrong."""

    def __init__(self, message: str, *location: int | str) -> None:
        super().__init__(message)
        self.location: Location = location


def load(path: Path, model: type[M], *, environment: Mapping[str, str] | None = None) -> M:
    """The content of `path` as a `model`.

    `${NAME}` in a value is replaced by that variable of `environment` (the process's own when
    None); `$$` is a plain dollar sign. An empty file is an empty mapping.

    Raises ConfigError naming every problem found, each with its line.
    """
    return parse(read_text(path), path, model, environment=environment)


def read_text(path: Path) -> str:
    """The text of the file at `path`. Raises ConfigError; never waits for a pipe to be written."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to never returns.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a Path cannot be opened with flags
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(Problem(path, None, "", "not a regular file"))
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(Problem(path, None, "", error.strerror or str(error))) from error
    except ValueError as error:
        raise ConfigError(Problem(path, None, "", f"not a path: {error}")) from error
    if len(content) > LARGEST_FILE:
        raise ConfigError(Problem(path, None, "", "too large to be a configuration"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(Problem(path, line, "", f"not UTF-8 text: {error.reason}")) from error


def parse(
    text: str, path: Path, model: type[M], *, environment: Mapping[str, str] | None = None
) -> M:
    """As `load`, for text that was read already; `path` is for messages and relative paths."""
    root = compose(text, path)
    content = plain_value(root, path, os.environ if environment is None else environment)
    try:
        return model.model_validate(content, context={"folder": path.parent})
    except ValidationError as error:
        raise ConfigError(*_problems(error, path, root)) from error


def problem_at(path: Path, message: str, *location: int | str) -> Problem:
    """A problem of a file that is sound in itself, at the place `location` in it.

    Raises ConfigError where the file cannot be read any more.
    """
    place, line = _place(compose(read_text(path), path), location, absent=True)
    return Problem(path, line, dotted(place), message)


def _problems(error: ValidationError, path: Path, root: yaml.Node) -> Iterator[Problem]:
    """One problem for each place, from top to bottom.

    What the members of a union say of one value is one problem.
    """
    messages: dict[tuple[Location, int], list[str]] = {}
    for detail in error.errors(include_url=False):
        cause = detail.get("ctx", {}).get("error")
        location: Location = detail["loc"]
        absent = detail["type"] == "missing"
        if isinstance(cause, MisplacedError):
            location += cause.location
            absent = bool(cause.location)
        said = messages.setdefault(_place(root, location, absent=absent), [])
        if (message := _message(detail, cause)) not in said:
            said.append(message)
    for (place, line), said in sorted(messages.items(), key=lambda item: item[0][1]):
        yield Problem(path, line, dotted(place), "; or: ".join(said))


def _message(detail: ErrorDetails, cause: object) -> str:
    if isinstance(cause, ValueError | AssertionError):
        return str(cause)
    if detail["type"] in _WORDS:
        return _WORDS[detail["type"]]
    message = detail["msg"].removeprefix("Input ")
    if message.startswith("should be '"):  # a choice of words
        return message.replace("should be", "expected", 1)
    return message[:1].lower() + message[1:]


def _place(root: yaml.Node, location: Location, *, absent: bool) -> tuple[Location, int]:
    """The part of `location` that stands in the file, and its line.

    pydantic also puts the names of union members and validators into a location; they are passed
    over. With `absent`, the last part may be a key that is not there: its line is that of the
    mapping which lacks it.
    """
    node, line = root, line_of(root)
    place: list[int | str] = []
    for index, part in enumerate(location):
        found = child(node, part)
        if found is not None:
            node, line = found
            place.append(part)
        elif absent and index == len(location) - 1:
            place.append(part)
    return tuple(place), line
