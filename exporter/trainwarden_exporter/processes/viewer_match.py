"""Detects selectors that also match an editor or a pager of the worker's script."""

from __future__ import annotations

import re

from trainwarden_exporter.processes.selector import Selector

VIEWERS = ("tail -f", "less", "vim")

_CHARACTER_CLASS = re.compile(r"\[[^]]*\][*+?]?")
_WILDCARD = re.compile(r"\.[*+?]\??")
_ESCAPED_WORD = re.compile(r"\\[wS][*+]?")
_ESCAPED_OTHER = re.compile(r"\\[AbBdDsWZ][*+?]?")
_SCRIPT = re.compile(r"[\w./-]*\w\.(?:py|sh)\b")


def find_matching_viewer(selector: Selector) -> str:
    """Returns a command line of an editor or a pager that `selector` matches, or ""."""
    command = selector.command
    narrower = (selector.executable, selector.pid_file, selector.systemd_unit)
    if command is None or any(condition is not None for condition in narrower):
        return ""
    lines = (f"{viewer} {script}" for script in _scripts(command.pattern) for viewer in VIEWERS)
    return next((line for line in lines if command.search(line)), "")


def _scripts(pattern: str) -> list[str]:
    """Returns the names of scripts in a regular expression."""
    text = _CHARACTER_CLASS.sub("", pattern)
    text = _ESCAPED_OTHER.sub(" ", _ESCAPED_WORD.sub("x", _WILDCARD.sub(" ", text)))
    text = re.sub(r"\(\?[:=!<]*|[()|^$]", " ", text.replace("\\", ""))
    return _SCRIPT.findall(text)
