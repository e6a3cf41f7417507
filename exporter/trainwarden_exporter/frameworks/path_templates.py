"""Path templates: paths with names and globs in them. Pure.

A template consists of parts joined by `/`. In a part

- `{trial}` matches a whole name or a piece of a name, and the same text wherever it is repeated;
- `{run?}`, always a whole part, matches one folder or no folder; `{run? not run_*}` does not match
  folders whose name matches `run_*`;
- `*`, `?` and `[0-9]` work as in a shell, and do not match a leading dot either;
- `{has step_*}` at the end adds nothing to the path: the folder before it matches only if it
  contains an entry of such a name, which distinguishes a folder of checkpoints from other folders.
  `{has step_*/rank_*}` looks one folder further.

A template that begins with `/` does not depend on the run's path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

_TOKEN = re.compile(r"\{[^{}]*\}|\[[!^]?\]?[^\]/]*\]|[*?]|[^*?\[\]{}]+|.", re.DOTALL)
_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_OPTIONAL = re.compile(r"\{(\w+)\?(?: not ([^{}]+))?\}")
_HAS = re.compile(r"(?:^|/)\{has +([^{}]+)\}$")


class Token(NamedTuple):
    """A piece of a part: plain text, the name in braces, or a glob as a regular expression."""

    kind: Literal["text", "name", "glob"]
    text: str


@dataclass(frozen=True)
class TemplatePart:
    """The text between two slashes of a template. Raises ValueError if it is invalid."""

    text: str

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        if self.optional_name:
            return (Token("name", _checked_name(self.optional_name)),)
        return tuple(_tokens(self.text))

    @cached_property
    def optional_name(self) -> str:
        """The name of an optional part; else empty."""
        optional = _OPTIONAL.fullmatch(self.text)
        return optional[1] if optional else ""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens if token.kind == "name")

    def literal(self, names: Mapping[str, str]) -> str | None:
        """Returns the only text that it matches, given `names`; None if there may be several."""
        if any(token.kind == "glob" for token in self.tokens) or not self.names <= names.keys():
            return None
        return "".join(text if kind == "text" else names[text] for kind, text in self.tokens)

    def pattern(self, names: Mapping[str, str]) -> re.Pattern[str]:
        """Returns what it matches, given `names`; each other name is a group."""
        pieces: list[str] = []
        grouped: set[str] = set()
        for kind, text in self.tokens:
            if kind == "text":
                pieces.append(re.escape(text))
            elif kind == "glob":
                pieces.append(text)
            elif text in names:
                pieces.append(re.escape(names[text]))
            else:
                pieces.append(f"(?P={text})" if text in grouped else f"(?P<{text}>.+)")
                grouped.add(text)
        optional = _OPTIONAL.fullmatch(self.text)
        excluded = optional[2] if optional else None
        if excluded is not None:
            pieces.insert(0, rf"(?!{TemplatePart(excluded).pattern({}).pattern}\Z)")
        hidden = "" if self.text.startswith(".") else r"(?!\.)"
        try:
            return re.compile(hidden + "".join(pieces), re.DOTALL)
        except re.error as error:  # such as [z-a] or []
            raise ValueError(f"{self.text}: {error.msg}") from None


def _tokens(text: str) -> Iterator[Token]:
    for piece in _TOKEN.findall(text):
        if piece == "*":
            yield Token("glob", ".*")
        elif piece == "?":
            yield Token("glob", ".")
        elif piece[0] == "[" and len(piece) > 1:
            inside = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
            negation = "^" if inside.startswith(("!", "^")) else ""
            yield Token("glob", f"[{negation}{inside.lstrip('!^')}]")
        elif piece[0] == "{" and len(piece) > 1:
            yield Token("name", _checked_name(piece[1:-1]))
        elif piece in "{}":
            raise ValueError(f"{text}: unmatched brace")
        else:
            yield Token("text", piece)


def _checked_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{{{text}}}: not a name in braces, such as {{trial}}")
    return text


@dataclass(frozen=True)
class PathTemplate:
    """A parsed template. Raises ValueError, with the reason, for invalid text."""

    template: str

    def __post_init__(self) -> None:
        if not self.template or "\0" in self.template:
            raise ValueError("a path template must not be empty or contain a NUL character")
        if "**" in self.template:
            raise ValueError("** would search a whole tree: write one * for each folder level")
        for part in (*self.parts, *self.required_content):
            part.pattern({})

    @property
    def absolute(self) -> bool:
        return self.template.startswith("/")

    @cached_property
    def parts(self) -> tuple[TemplatePart, ...]:
        """The parts without `{has …}`."""
        return _parts(_HAS.sub("", self.template))

    @cached_property
    def required_content(self) -> tuple[TemplatePart, ...]:
        """The parts inside `{has …}`; empty without it."""
        match = _HAS.search(self.template)
        return _parts(match[1].strip()) if match else ()

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for part in self.parts for name in part.names)

    def path_for(self, names: Mapping[str, str]) -> str | None:
        """Returns the only path that it matches, given `names`; None if there may be several."""
        texts = [
            "" if part.optional_name and part.optional_name not in names else part.literal(names)
            for part in self.parts
        ]
        if None in texts:
            return None
        return ("/" if self.absolute else "") + "/".join(text for text in texts if text)


def _parts(text: str) -> tuple[TemplatePart, ...]:
    pieces = re.findall(r"(?:\{[^{}]*\}|[^/])+", text)
    return tuple(TemplatePart(piece) for piece in pieces if piece != ".")
