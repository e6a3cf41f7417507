"""Command lines in a file: no shell reads them, so what only a shell does is a mistake."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from pathlib import PurePath
from typing import TypeVar

T = TypeVar("T", bound=Sequence[str])

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
"""A word that sets a variable, in front of a command."""

_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_LITERAL = re.compile(r"'[^']*'|\\.", re.DOTALL)
"""What a shell takes as it stands; in double quotes it replaces variables."""
_OPERATOR = re.compile(r"&&|\|\|?|\|&|&|<|\d?>>?(&\d)?|&>>?")
_IN_TEXT = re.compile(rf"{_OPERATOR.pattern}|(\d|&)?>>?[^>&]+|\S*;")
_EXPANSION = re.compile(r"\$[A-Za-z_(]|`")
_BUILTINS = frozenset(
    (
        *("cd", "pushd", "source", ".", "export", "unset", "set", "ulimit", "umask"),
        *("eval", "exec", "for", "while", "if", "(", "{"),
    )
)
"""What stands first, and only a shell can execute."""
_SHELLS = frozenset(("sh", "bash", "dash", "zsh"))
_JOINING = frozenset(("ssh", "autossh", "mosh", "tmux", "screen", "watch", "parallel"))
"""Programs that join their arguments and give them to a shell."""


def split_command(text: str) -> list[str]:
    """Splits a text as a shell does; it may begin with variables.

    Raises ValueError if it is no command, or if a shell would do more with it.
    """
    # a shell joins lines that end with a backslash; shlex makes an argument of the end of the line
    text = _LITERAL.sub(lambda found: "" if found[0] == "\\\n" else found[0], text)
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"not a command: {error}") from error
    programs = _programs(found)
    if not programs & _JOINING:
        _check(_QUOTED.sub("_", text).split(), _IN_TEXT)
        if not programs & _SHELLS and _EXPANSION.search(_LITERAL.sub("_", text)):
            raise ValueError(
                "no shell replaces `$` or a backtick here: write ${NAME} for a variable,"
                " single quotes around what is to stay, or [sh, -c, 'COMMAND']"
            )
    return ["env", *found] if found and ASSIGNMENT.fullmatch(found[0]) else found


def check_arguments(arguments: T) -> T:
    """Raises ValueError if only a shell could execute the argument list."""
    if arguments and not _programs(arguments) & _JOINING:
        _check(arguments, _OPERATOR)
        _check(arguments[0].split(), _OPERATOR)
    return arguments


def _programs(arguments: Iterable[str]) -> set[str]:
    return {PurePath(one).name for one in arguments}


def _check(words: Sequence[str], operator: re.Pattern[str]) -> None:
    first = next(dropwhile(ASSIGNMENT.fullmatch, words), "")
    wrong = first if first in _BUILTINS else next(filter(operator.fullmatch, words), "")
    if wrong:
        raise ValueError(
            f"`{wrong}` needs a shell, and none reads this: write [sh, -c, 'COMMAND'], with the"
            " whole command as the third argument"
        )
