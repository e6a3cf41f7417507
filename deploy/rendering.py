"""Turns shipped templates and YAML into the files of one run; nothing here touches a disk."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ports

TOKEN_FILE = "secrets/webhook-token"  # noqa: S105 - a path, not a secret
"""Where every run folder has the token, as rules/alertmanager.yml names it."""

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def fill(text: str, values: Mapping[str, str], quote: Callable[[str], str]) -> str:
    """`text` with each `${name}` replaced by that value, quoted. KeyError for an unknown name."""
    return _PLACEHOLDER.sub(lambda match: quote(values[match[1]]), text)


def with_ports(value: Any, chosen: Mapping[str, int]) -> Any:
    """A shipped YAML tree with the usual ports on loopback replaced by those `chosen`."""
    numbers = {str(port): str(chosen[name]) for name, port in ports.USUAL.items()}

    def replace(match: re.Match[str]) -> str:
        return f"{ports.LOOPBACK}:{numbers.get(match[1], match[1])}"

    return _each_text(
        value, lambda _, text: re.sub(re.escape(ports.LOOPBACK) + r":(\d+)\b", replace, text)
    )


def with_absolute_paths(value: Any, folder: Path) -> Any:
    """A shipped YAML tree whose rule files and `…_file` paths no longer depend on where it lies.

    The webhook's token is left relative: each run folder has its own.
    """

    def replace(key: str, text: str) -> str:
        names_file = key == "rule_files" or key.endswith("_file")
        return str(folder / text) if names_file and text != TOKEN_FILE else text

    return _each_text(value, replace)


def program(target: Mapping[str, Any], folder: Path) -> str:
    """The section of supervisord.conf for one target of the demo's remediator.yml.

    supervisord only starts it: to bring it back is the remediator's part.
    """
    process = target["process"]
    return (
        f"\n[program:{target['worker']}]\n"
        f"command={command(process['start'])}\n"
        f"directory={escaped(process['cwd'])}\n"
        "priority=10\n"
        "startsecs=1\n"
        "autorestart=false\n"
        f"stdout_logfile={escaped(str(folder / process['log']))}\n"
        "stdout_logfile_maxbytes=0\n"
        "redirect_stderr=true\n"
    )


def _each_text(value: Any, change: Callable[[str, str], str], key: str = "") -> Any:
    match value:
        case dict():
            return {name: _each_text(item, change, str(name)) for name, item in value.items()}
        case list():
            return [_each_text(item, change, key) for item in value]
        case str():
            return change(key, value)
        case _:
            return value


def command(line: Sequence[str | Path]) -> str:
    return escaped(shlex.join(map(str, line)))


def escaped(text: str) -> str:
    """`text` for supervisord.conf, where % begins a substitution."""
    return text.replace("%", "%%")


def single_quoted(text: str) -> str:
    """`text` for inside single quotes of YAML."""
    return text.replace("'", "''")
