"""Finds the process that a selector without a match was probably meant for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import PROC, list_pids, read_command_line, read_own_pid
from trainwarden_exporter.processes.selector import Selector

SEARCH_INTERVAL = 60.0
"""Seconds between two searches for one worker: a search reads the command line of every process."""

_SCRIPTS = (".py", ".sh")
_SIMILAR = 0.7
_MAX_ARGUMENTS = 8
_MAX_LENGTH = 200
_ESCAPED_CLASS = re.compile(r"\\[AbBdDsSwWZ]")
_WORD = re.compile(r"[\w.-]{3,}")
_INTERPRETERS = frozenset({"python", "python3", "bash", "sh", "env", "exec"})


class NearMatchFinder:
    """Searches the processes at `root`, at most once in SEARCH_INTERVAL for each worker."""

    def __init__(self, root: Path = PROC, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._found: dict[WorkerKey, tuple[float, str]] = {}

    def find(self, key: WorkerKey, selector: Selector) -> str:
        """Returns program and script of the most similar command line; "" if none is similar."""
        now, known = self._clock(), self._found.get(key)
        if known is None or now - known[0] >= SEARCH_INTERVAL:
            known = (now, self._search(selector))
            self._found[key] = known
        return known[1]

    def _search(self, selector: Selector) -> str:
        words = _words(selector)
        own_pid = read_own_pid(self._root)
        best, nearest = 0, ""
        for pid in list_pids(self._root) if words else ():
            arguments = read_command_line(pid, self._root)
            if not arguments or pid == own_pid:
                continue
            names = [one.rpartition("/")[2] for one in arguments[:_MAX_ARGUMENTS]]
            score = sum(bool(get_close_matches(word, names, 1, _SIMILAR)) for word in words)
            if score > best:
                best, nearest = score, _short_command(arguments)
        return nearest


def describe_selector(selector: Selector) -> str:
    """Returns the conditions of `selector` as in exporter.yml."""
    conditions = selector.model_dump(mode="json", exclude_none=True)
    return ", ".join(f"{name}: {value}" for name, value in conditions.items())[:_MAX_LENGTH]


def _words(selector: Selector) -> tuple[str, ...]:
    """Returns the literal words of the conditions on the program, without interpreters."""
    patterns = [] if selector.command is None else [selector.command.pattern]
    if selector.executable is not None:
        patterns.append(selector.executable.rpartition("/")[2])
    texts = (_ESCAPED_CLASS.sub(" ", one).replace("\\", "") for one in patterns)
    words = (word.strip(".-") for text in texts for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in words if word and word not in _INTERPRETERS))


def _short_command(arguments: Sequence[str]) -> str:
    """Returns the names of program and script; other arguments may contain secrets."""
    script = next((one for one in arguments[1:_MAX_ARGUMENTS] if one.endswith(_SCRIPTS)), "")
    modules = (f"-m {after}" for flag, after in pairwise(arguments) if flag == "-m")
    script = script or next(modules, "")
    names = (arguments[0].rpartition("/")[2], script.rpartition("/")[2])
    return " ".join(filter(None, names))[:_MAX_LENGTH]
