"""Builders of example log lines: colours, prefixes, and the expected matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

GREEN, RED, BOLD, DIM, RESET = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True)
class Line:
    """A line, and the groups of each pattern of its framework that it matches."""

    text: str
    hits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    """Names of the `COMMON_ERROR_PATTERNS` that it matches."""

    @property
    def plain(self) -> str:
        """The text without colours."""
        return ANSI.sub("", self.text)


def areal(message: str, *, logger: str = "StatsLogger", level: str = "INFO") -> str:
    head = "\x1b[1;38;2;180;140;80m(AReaL)\x1b[0m"
    return f"{head} {GREEN}20261121-05:04:31.218 {logger} {level}: {message}{RESET}"


def loguru(message: str, level: str = "INFO") -> str:
    return f"{DIM}05:04:31{RESET} {BOLD}{level:>7}{RESET} {BOLD}\x1b[22m{message}{RESET}{RESET}"


def ray(message: str, actor: str = "TaskRunner", pid: int = 4711) -> str:
    return f"\x1b[36m({actor} pid={pid}, ip=10.0.0.2)\x1b[0m {message}"


def skyrl(message: str, level: str = "INFO") -> str:
    where = "skyrl.train.trainer:train:342"
    head = f"{GREEN}2026-08-21 18:02:38.123{RESET} | {BOLD}{level:<8}{RESET}"
    return ray(f"{head} | \x1b[36m{where}\x1b[0m - {BOLD}{message}{RESET}", "skyrl_entrypoint")


def titan(message: str) -> str:
    return f"[rank0]:[titan] 2026-08-21 21:30:21,123 - root - INFO - {message}"


def slime(message: str) -> str:
    return ray(f"[2026-08-21 17:14:19] timer.py:30 - {message}", "MegatronTrainRayActor")
