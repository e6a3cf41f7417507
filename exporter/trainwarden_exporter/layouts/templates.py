"""How a layout writes down where things lie: paths with names and globs in them. Pure.

A template is parts joined by `/`. In a part

- `{trial}` stands for one whole name or a piece of one, and for the same text wherever it returns;
- `{run?}`, a part of its own, stands for one folder or for none at all, and
  `{run? not run_*}` for one that is not so called;
- `*`, `?` and `[0-9]` are as in a shell, and like there match no leading dot;
- `{has step_*}` at the end adds nothing to the path: the folder before it counts only while
  something of such a name lies in it, so that a folder of checkpoints is told from any other.
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

Kind = Literal["text", "name", "glob"]


class Token(NamedTuple):
    """A piece of a part: plain text, the name in braces, or the glob as it is in a regex."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Part:
    """What stands between two slashes of a template. Raises ValueError for what is none."""

    text: str

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        whole = _OPTIONAL.fullmatch(self.text)
        return (Token("name", _name(whole[1])),) if whole else tuple(_tokens(self.text))

    @cached_property
    def optional(self) -> str:
        """The name, of a part that may stand for no folder at all; else nothing."""
        whole = _OPTIONAL.fullmatch(self.text)
        return whole[1] if whole else ""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens if token.kind == "name")

    def fixed(self, names: Mapping[str, str]) -> str | None:
        """The one text it stands for when `names` are known; None while several may do."""
        texts = [
            token.text if token.kind == "text" else names.get(token.text)
            for token in self.tokens
            if token.kind != "glob"
        ]
        whole = len(texts) == len(self.tokens)
        return "".join(text for text in texts if text) if whole and None not in texts else None

    def pattern(self, names: Mapping[str, str]) -> re.Pattern[str]:
        """What it matches when `names` are known; each other name is a group."""
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
        hidden = "" if self.text.startswith(".") else r"(?!\.)"
        return re.compile(hidden + self._exclusion() + "".join(pieces), re.DOTALL)

    def _exclusion(self) -> str:
        whole = _OPTIONAL.fullmatch(self.text)
        if whole is None or whole[2] is None:
            return ""
        return rf"(?!{Part(whole[2]).pattern({}).pattern}\Z)"


def _tokens(text: str) -> Iterator[Token]:
    for piece in _TOKEN.findall(text):
        if piece == "*":
            yield Token("glob", ".*")
        elif piece == "?":
            yield Token("glob", ".")
        elif piece[0] == "[" and len(piece) > 1:
            inside = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
            yield Token("glob", f"[{'^' if inside[0] in '!^' else ''}{inside.lstrip('!^')}]")
        elif piece[0] == "{" and len(piece) > 1:
            yield Token("name", _name(piece[1:-1]))
        elif piece in "{}":
            raise ValueError(f"{text}: a brace without its other half")
        else:
            yield Token("text", piece)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{{{text}}}: not a name in braces, such as {{trial}}")
    return text


@dataclass(frozen=True)
class Place:
    """A template, taken apart. Raises ValueError, with the reason, for a text that is none."""

    template: str

    def __post_init__(self) -> None:
        if not self.template or "\0" in self.template:
            raise ValueError("a template of a path is empty, or holds a NUL character")
        if "**" in self.template:
            raise ValueError("** would search a whole tree: write one * for each folder between")
        for part in (*self.parts, *self.witness):
            part.pattern({})

    @property
    def absolute(self) -> bool:
        return self.template.startswith("/")

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Its parts, without `{has …}`."""
        return _parts(_HAS.sub("", self.template))

    @cached_property
    def witness(self) -> tuple[Part, ...]:
        """What must lie in the folder for it to count, part by part; empty when nothing need to."""
        match = _HAS.search(self.template)
        return _parts(match[1].strip()) if match else ()

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in it."""
        return frozenset(name for part in self.parts for name in part.names)

    def path(self, names: Mapping[str, str]) -> str | None:
        """The path it stands for when `names` are known, None while it may stand for several."""
        texts = [
            "" if part.optional and part.optional not in names else part.fixed(names)
            for part in self.parts
        ]
        if None in texts:
            return None
        return ("/" if self.absolute else "") + "/".join(text for text in texts if text)


def _parts(text: str) -> tuple[Part, ...]:
    pieces = re.findall(r"(?:\{[^{}]*\}|[^/])+", text)
    return tuple(Part(piece) for piece in pieces if piece != ".")
