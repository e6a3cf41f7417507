"""Finds in the end of a log the lines that tell the progress of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.layouts.base import Phase

READ_BYTES = 256 << 10

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEPS = (
    r"\b[Ss]tep (?P<step>\d+)/(?P<total>\d+)",
    r"\b[Ss]tep[ :=]+(?P<step>\d+)",
    r"\b[Ii]ter(?:ation)?[ :=]+(?P<step>\d+)(?:/(?P<total>\d+))?",
    r"\bglobal_step['\" :=]+(?P<step>\d+)",
    r"\b[Ee]pisode[ :=]+(?P<step>\d+)",
    r"\b[Tt]rial (?P<step>\d+) finished",
)
_KEYS = ("loss", "reward", "grad_norm", "kl", "entropy", "accuracy", "lr")
_LEAST_STEPS = 2
_PHASES = (
    ("waiting_for_rollouts", r"(?i)waiting for (?:the |a )?(?:training )?(?:batch|rollouts?)"),
    ("saving", r"(?i)\bsaving (?:a |the |model )?checkpoint"),
    ("evaluating", r"(?i)\b(?:evaluating|evaluation started|running evaluation)\b"),
    ("finished", r"(?i)\btraining (?:is )?(?:finished|completed?|done)\b"),
)


@dataclass(frozen=True, slots=True)
class ProposedPattern:
    """A pattern that found lines."""

    name: str
    regex: str
    phase: Phase | None = None
    values: tuple[str, ...] = ()
    example: str = ""


def read_tail(path: Path) -> str:
    """The last lines of a log, without colours; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - READ_BYTES))
            content = file.read(READ_BYTES)
    except OSError:
        return ""
    return _COLOURS.sub("", content.decode(errors="replace"))


def propose_patterns(text: str) -> tuple[ProposedPattern, ...]:
    """What tells steps and phases in `text`."""
    lines = text.splitlines()
    steps = _steps(lines)
    phases = (
        ProposedPattern(name, regex, Phase(name), example=found.strip())
        for name, regex in _PHASES
        if (found := next((line for line in reversed(lines) if re.search(regex, line)), ""))
    )
    return (*steps, *phases)


def _steps(lines: Sequence[str]) -> tuple[ProposedPattern, ...]:
    """The first of the known forms in which steps are told, and rise, whoever else counts too."""
    for regex in _STEPS:
        found = [(int(match["step"]), line) for line in lines if (match := re.search(regex, line))]
        numbers = [step for step, _ in found]
        if len(set(numbers)) < _LEAST_STEPS or numbers[-1] <= numbers[0]:
            continue
        example = found[-1][1]
        told = rf"\b(?:{'|'.join(_KEYS)})(?=['\"]?\s*[:=]\s*[-+]?[\d.])"
        keys = tuple(dict.fromkeys(re.findall(told, example)))
        return (ProposedPattern("step", regex, Phase.TRAINING, keys, example.strip()),)
    return ()
