"""Proposes patterns for the lines of progress and of emergency brakes at the end of a log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.runtime.safe_open import open_regular

READ_BYTES = 256 << 10

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEPS = (
    r"\b[Ss]tep (?P<step>\d+)/(?P<total>\d+)",
    r"\b[Ss]tep[ :=]+(?P<step>\d+)",
    r"\b[Ii]ter(?:ation)?[ :=]+(?P<step>\d+)(?:/ *(?P<total>\d+))?",
    r"\bglobal_step['\" :=]+(?P<step>\d+)",
    r"\b[Ee]pisode[ :=]+(?P<step>\d+)",
    r"\b[Tt]rial (?P<step>\d+) finished",
)
_KEY = r"\w*(?:loss|reward|grad_norm|kl|entropy|accuracy|acc|lr|perplexity|score)"
_MIN_STEPS = 2
_PHASES = (
    ("waiting_for_rollouts", r"(?i)waiting for (?:the |a )?(?:training )?(?:batch|rollouts?)"),
    ("saving", r"(?i)\bsaving (?:a |the |model )?checkpoint"),
    ("evaluating", r"(?i)\b(?:evaluating|evaluation started|running evaluation)\b"),
    ("finished", r"(?i)\btraining (?:is )?(?:finished|completed?|done)\b"),
)
_BRAKE = "emergency_brake"
_BRAKE_LINE = r"(?i)\bemergency[ _-]?brake\b"


@dataclass(frozen=True, slots=True)
class ProposedPattern:
    """A pattern that matched lines."""

    name: str
    regex: str
    phase: Phase | None = None
    values: tuple[str, ...] = ()
    example: str = ""
    error: bool = False
    resets: str = ""
    """Name of the pattern whose streak it ends."""


def read_tail(path: Path) -> str:
    """Returns the last lines of a log without colours; empty if it cannot be read."""
    try:
        descriptor = open_regular(path)
        if descriptor is None:
            return ""  # opening a pipe would block
        with os.fdopen(descriptor, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - READ_BYTES))
            content = file.read(READ_BYTES)
    except OSError:
        return ""
    return _COLOURS.sub("", content.decode(errors="replace"))


def propose_patterns(text: str) -> tuple[ProposedPattern, ...]:
    """Returns patterns for steps, phases and an emergency brake in `text`.

    A brake is only proposed with steps, which reset it: its streak would be unknown.
    """
    lines = text.splitlines()
    steps = _steps(lines)
    if steps and (braked := _last_match(_BRAKE_LINE, lines)):
        brake = ProposedPattern(_BRAKE, _BRAKE_LINE, example=braked.strip(), error=True)
        steps = (*(replace(one, resets=_BRAKE) for one in steps), brake)
    phases = (
        ProposedPattern(name, regex, Phase(name), example=found.strip())
        for name, regex in _PHASES
        if (found := _last_match(regex, lines))
    )
    return (*steps, *phases)


def _last_match(regex: str, lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if re.search(regex, line)), "")


def _steps(lines: Sequence[str]) -> tuple[ProposedPattern, ...]:
    """Returns the first known step format that matches with increasing numbers."""
    for regex in _STEPS:
        found = [(int(match["step"]), line) for line in lines if (match := re.search(regex, line))]
        numbers = [step for step, _ in found]
        if len(set(numbers)) < _MIN_STEPS or numbers[-1] <= numbers[0]:
            continue
        example = found[-1][1]
        key_pattern = rf"\b({_KEY})(?=['\"]?(?:\s*[:=]\s*|\s+)[-+]?(?:\d|\.\d|nan\b|inf\b))"
        keys = tuple(dict.fromkeys(re.findall(key_pattern, example, re.IGNORECASE)))
        return (ProposedPattern("step", regex, Phase.TRAINING, keys, example.strip()),)
    return ()
