"""Turns YAML into plain values, and rejects, by line, errors that YAML itself permits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer
from yaml.reader import Reader
from yaml.resolver import Resolver

from trainwarden_exporter.exceptions import ConfigError, Problem

Location = tuple[int | str, ...]

MAX_DEPTH = 40
MAX_NODES = 100_000
"""Keys and values in one file with aliases expanded: a few lines of aliases can mean billions."""

_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


def compose(text: str, path: Path) -> yaml.Node:
    """Returns the root of the document in `text`; an empty mapping if `text` is empty.

    Raises ConfigError if `text` is not YAML, if an alias refers to a value that contains it, and
    for more than MAX_NODES keys and values, so that following the aliases ends.
    """
    if (refused := Reader.NON_PRINTABLE.search(text)) is not None:
        line = text.count("\n", 0, refused.start()) + 1
        message = f"not YAML: it contains the character U+{ord(refused[0]):04X}"
        raise ConfigError(Problem(path, line, "", message))
    try:
        root: yaml.Node | None = _BoundedLoader(text).get_single_node()
    except _LimitError as error:
        raise ConfigError(Problem(path, error.line, "", error.message)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # an end that is missing is reported after the last line
        at = min(mark.line + 1, len(text.splitlines())) if mark else None
        message = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(Problem(path, at, "", f"not YAML: {message}")) from error
    except (yaml.YAMLError, RecursionError) as error:
        message = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(Problem(path, None, "", f"not YAML: {message}")) from error
    if root is None or root.tag == "tag:yaml.org,2002:null":
        return yaml.MappingNode("tag:yaml.org,2002:map", [])
    return root


def plain_value(root: yaml.Node, path: Path, environment: Mapping[str, str]) -> Any:
    """Returns `root` as dicts, lists and scalars, with variables of `environment` expanded.

    Keys are always text, as written; so are values that YAML 1.1 reads as a date (2025-11-21) or as
    a sexagesimal number (1:30).

    Raises ConfigError with all problems.
    """
    plain = _PlainValueBuilder(path, environment)
    content = plain.value(root, ())
    if plain.problems:
        raise ConfigError(*plain.problems)
    return content


def child(node: yaml.Node, part: int | str) -> tuple[yaml.Node, int] | None:
    """Returns the value at `part` of `node`, and its line; None if it is absent."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag != _MERGE and key.value == str(part):
                return value, line_of(key)
        for source in _merge_sources(node):
            if (found := child(source, part)) is not None:
                return found
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, line_of(item)
    return None


def line_of(node: yaml.Node) -> int:
    """Returns the line, from 1, where `node` begins."""
    return node.start_mark.line + 1 if node.start_mark else 1


def _merge_sources(node: yaml.MappingNode) -> Iterator[yaml.Node]:
    """Yields the nodes that `node` merges with `<<`, the highest precedence first."""
    for key, value in node.value:
        if key.tag == _MERGE:
            yield from value.value if isinstance(value, yaml.SequenceNode) else (value,)


class _LimitError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class _BoundedLoader(Composer, CParser, Resolver):
    """Counts the nodes while it composes them, so that a file beyond the limit takes no memory.

    Only the parser is that of libyaml: its own composer cannot be bounded.
    """

    def __init__(self, stream: str) -> None:
        CParser.__init__(self, stream)
        Composer.__init__(self)
        Resolver.__init__(self)
        self._count = 0
        self._sizes: dict[int, int] = {}
        """Nodes in a composed node, aliases expanded, by its id."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        line = self.peek_event().start_mark.line + 1  # type: ignore[union-attr]
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._count
        self._count += not is_alias
        node = super().compose_node(parent, index)
        if is_alias:
            if id(node) not in self._sizes:
                raise _LimitError(line, "an alias refers to a value that contains it")
            self._count += self._sizes[id(node)]
        if self._count > MAX_NODES:
            message = f"too large: more than {MAX_NODES} keys and values with aliases expanded"
            raise _LimitError(line, message)
        if not is_alias:
            self._sizes[id(node)] = self._count - before
        return node


class _PlainValueBuilder:
    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self.path = path
        self.environment = environment
        self.problems: list[Problem] = []
        self._scalars = yaml.constructor.SafeConstructor()
        self._depth = 0

    def value(self, node: yaml.Node, at: Location) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, at)
        if self._depth >= MAX_DEPTH:
            return self._add_problem(node, at, "nested too deeply")
        self._depth += 1
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, at)
            return [self.value(item, (*at, index)) for index, item in enumerate(node.value)]
        finally:
            self._depth -= 1

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem(key_node, at, "a key must be plain text")
                continue
            key: str = key_node.value
            if key in result:
                self._add_problem(key_node, (*at, key), "given twice")
            result[key] = self.value(value_node, (*at, key))
        for source in _merge_sources(node):
            if not isinstance(source, yaml.MappingNode):
                self._add_problem(source, (*at, "<<"), "only a mapping can be merged")
                continue
            for key, value in (self.value(source, at) or {}).items():
                result.setdefault(key, value)
        return result

    def _scalar(self, node: yaml.ScalarNode, at: Location) -> Any:
        if node.tag == _TIMESTAMP or (node.tag in _NUMBERS and ":" in node.value):
            return node.value
        try:
            value = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            reason = getattr(error, "problem", None) or error
            return self._add_problem(node, at, f"not a value: {reason}")
        return self._expand(value, node, at) if isinstance(value, str) else value

    def _expand(self, text: str, node: yaml.Node, at: Location) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return "$"
            if (value := self.environment.get(match[2])) is None:
                self._add_problem(node, at, f"environment variable {match[2]} is not set")
                return ""
            return value

        return _VARIABLE.sub(replace, text)

    def _add_problem(self, node: yaml.Node, at: Location, message: str) -> None:
        self.problems.append(Problem(self.path, line_of(node), dotted(at), message))


def dotted(location: Location) -> str:
    """`("runs", 0, "name")` as `runs[0].name`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
