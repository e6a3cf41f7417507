"""Redacts secrets in stored text: values with secret-like names, and well-known token formats.

Reports are meant to be shared; command lines and logs may contain secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

REDACTED = "[redacted]"
"""Replaces a secret."""

_WORDS = (
    r"(?:token|api[_-]?key|key|secret|passw(?:or)?d|passphrase|pwd|credential|authorization|cookie)"
)
# Bounded, and only from the beginning of a word: a line may be one long word.
_NAME = rf"(?P<name>[\w.-]{{0,80}}?{_WORDS}[\w.-]{{0,80}}?)"
_VALUE = r"""(?:(?:bearer|basic|token)\s+)?(?:"[^"]*"?|'[^']*'?|[^\s,;&"'})\]]+)"""

_ASSIGNED = re.compile(
    rf"(?<![\w.-]){_NAME}(?P<between>[\"']?\s{{0,3}}(?:=>|[=:])\s{{0,3}})(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"(?P<before>(?<!\S)--?{_NAME}\s+)(?P<value>(?!-){_VALUE})", re.IGNORECASE)
_IN_URL = re.compile(r"(?P<before>://[^\s/:@]{0,200}:)[^\s/@]{1,200}(?=@)")
_BEARER = re.compile(r"(?P<before>\bbearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_SHAPES = re.compile(
    # Hugging Face, OpenAI and similar, GitHub, Slack, AWS, and JSON web tokens.
    r"\b(?:hf_\w{10,}|sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abeprs]-[\w-]{10,}"
    r"|AKIA[A-Z0-9]{12,}|eyJ[\w-]{10,}\.[\w-]{4,}(?:\.[\w-]*)?)"
)
_HARMLESS_NAME = re.compile(
    r"tokeniz|keyword|keyboard|monkey|keyframe|error|exception|interrupt", re.IGNORECASE
)
_COUNTED_NAME = re.compile(r"tokens|keys", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d[\d.,_]*(?:e[+-]?\d+)?[kmg]?", re.IGNORECASE)
_ARGUMENT = re.compile(
    rf"(?P<name>[\w.-]*{_WORDS}[\w.-]*)(?:=(?P<value>.*))?", re.IGNORECASE | re.DOTALL
)


def redact(text: str) -> str:
    text = _IN_URL.sub(rf"\g<before>{REDACTED}", text)
    text = _ASSIGNED.sub(_without_value, text)
    text = _OPTION.sub(_without_value, text)
    text = _BEARER.sub(rf"\g<before>{REDACTED}", text)
    return _SHAPES.sub(REDACTED, text)


def redact_command(arguments: Iterable[str]) -> str:
    """Returns a command line as one line with secrets redacted, also in separate arguments."""
    kept = []
    hidden = False
    for argument in arguments:
        named = _ARGUMENT.fullmatch(argument)
        if named and _is_harmless(named["name"], named["value"] or ""):
            named = None
        if hidden and not argument.startswith("-"):
            kept.append(REDACTED)
        elif named and named["value"] is not None:
            kept.append(f"{named['name']}={REDACTED}")
        else:
            kept.append(redact(argument))
        hidden = named is not None and named["value"] is None and argument.startswith("-")
    return " ".join(kept)


def _without_value(match: re.Match[str]) -> str:
    if _is_harmless(match["name"], match["value"]):
        return match[0]
    return match[0][: match.start("value") - match.start()] + REDACTED


def _is_harmless(name: str, value: str) -> bool:
    """Whether a name only resembles a secret's: a tokenizer, or a count of tokens."""
    if _HARMLESS_NAME.search(name):
        return True
    counted = _COUNTED_NAME.search(name) is not None
    return counted and (not value or _NUMBER.fullmatch(value) is not None)
