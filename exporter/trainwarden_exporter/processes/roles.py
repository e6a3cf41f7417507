"""The roles of workers that rules, conditions and frameworks know. Any other is valid."""

from __future__ import annotations

import re

KNOWN_ROLES = (
    *("trainer", "rollout", "inference", "orchestrator"),
    *("evaluation", "launcher", "worker"),
)
SIMILAR = 0.85
"""Ratio of equal letters from which on a role is taken for a misspelt known one."""


def check_role(role: str) -> str:
    """Raises ValueError if a role is a misspelt known one: no rule would know its worker.

    `worker-1` is none, nor is `evaluator`.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - its memory would stay with a run

    word = re.match(r"[A-Za-z]*", role)
    begin = "" if word is None else word[0]
    meant = [] if begin in KNOWN_ROLES else get_close_matches(begin, KNOWN_ROLES, 1, SIMILAR)
    if meant:
        raise ValueError(f"no rule knows the role {role}; did you mean {meant[0]}?")
    return role
