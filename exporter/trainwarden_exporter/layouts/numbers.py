"""Regular expressions, in RE2's syntax, for numbers as programs print them."""

from __future__ import annotations

import re

NUMBER = r"[-+]?(?:(?i:nan|inf(?:inity)?)|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
"""A number, finite or not."""


def in_dict(key: str, name: str) -> str:
    """The number at `key` in a dictionary as Python or JSON prints it, as the group `name`.

    Also in quotes (Transformers 5) and inside `np.float64(…)` (numpy 2) or `tensor(…)`.
    """
    return rf"['\"]{re.escape(key)}['\"]: ?['\"]?(?:[\w.]+\()?(?P<{name}>{NUMBER})"


def after_colon(key: str, name: str) -> str:
    """The number in `key:1.5` or `key: np.float64(1.5)`, as the group `name`."""
    return rf"\b{re.escape(key)}: *(?:[\w.]+\()?(?P<{name}>{NUMBER})"
