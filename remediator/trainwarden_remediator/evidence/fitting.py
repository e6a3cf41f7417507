"""Keeps what is put into evidence within bounds. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

MOST_BYTES = 32 << 10
"""Of one piece of evidence, as JSON."""


def fitted(content: Mapping[str, Any], most: int = MOST_BYTES) -> str:
    """`content` as JSON of at most so many bytes.

    What is longest is halved until all of it fits: of a log the older lines go, of a table the
    smaller processes. `shortened` says that something went.
    """
    kept = copy.deepcopy(dict(content))
    while len(text := json.dumps(kept, ensure_ascii=False).encode()) > most:
        kept["shortened"] = True
        holder, name = max(_lists(kept), key=_weight, default=(None, ""))
        if holder is None or _weight((holder, name)) == 0:
            return json.dumps({"missing": {"everything": "too much of it"}, "shortened": True})
        longest = holder[name]
        half = len(longest) // 2
        holder[name] = longest[len(longest) - half :] if name == "lines" else longest[:half]
    return text.decode()


def _lists(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every list that may be shortened, by what holds it."""
    for value in content.values():
        if isinstance(value, dict):
            yield from ((value, name) for name in value if isinstance(value[name], list))
        elif isinstance(value, list):
            yield from ((one, "lines") for one in value if isinstance(one, dict) and "lines" in one)


def _weight(place: tuple[dict[str, Any], str]) -> int:
    holder, name = place
    return len(json.dumps(holder[name], ensure_ascii=False).encode()) if holder[name] else 0
