"""Shells that run a worker as one command of a text, as in `bash -c 'python train.py; sleep 1d'`.

A pattern that is found in the program's command line is found in the shell's as well. If all that
is left to the shell is to stay open, it says nothing about the worker: it outlives it. Decided from
what is there now, so that all programs decide alike, also directly after their start.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwarden_exporter.processes.selector import Selector
from trainwarden_exporter.runtime.linear_search import is_found

Command = tuple[str, ...]

_SHELL = re.compile(r"-?(ba|da|z|k|a|fi)?sh")
_TEXT_GIVER = re.compile(r"su|runuser|script|flock")
"""Programs that give the text after -c to a shell, and wait for it."""
_STARTER = re.compile(r"sudo|doas|timeout|setsid|tini|dumb-init|busybox")
"""Programs that wait for what the rest of their command line names; others execute it instead."""
_CLIENT = re.compile(r"docker|podman|nerdctl|srun|ssh")
"""Programs that have a service run the rest of their command line, perhaps on another host, and
wait for it."""
_OPEN = re.compile(r"(ba|da|z|k|fi)?sh|sleep|tail|cat|tee|read|wait|echo|printf|date|true|:|exit")
"""Commands that keep a shell or its output open, or end at once."""
_COMMAND = "--command="
_LOOP = ("while", "until", "for", "select")
_RESERVED = re.compile(r"if|then|elif|else|fi|do|done|while|until|exec|time|!|\{|\}")
_READ = ("read",)


@dataclass(frozen=True, slots=True)
class WorkerShell:
    """A shell whose text has one command for a worker, and after that only commands to stay open.

    Ending the worker makes such a shell do nothing else. `before` and `after`: the other commands.
    """

    before: tuple[Command, ...] = ()
    after: tuple[Command, ...] = ()
    asked: str = ""
    """The command line of a client of a service: what it asks for is not below it."""

    def asks_for(self, running: Sequence[str]) -> bool:
        """Whether a process with these arguments may be what a client asks for.

        Its program has a path, and below `#!` an interpreter.
        """
        programs = (one.rpartition("/")[2] for one in running[:2])
        return any(
            _unquoted((program, *running[at:])) in self.asked
            for at, program in enumerate(programs, 1)
        )

    def is_past_worker(self, running: Sequence[str] | None) -> bool:
        """Whether `running`, the arguments of a child, is a command after that of the worker.

        Without a child, None: the shell waits for input, or is between two commands.
        """
        if running is None:
            return not any(one[:1] == _READ for one in self.before)
        command = tuple(running)
        return any(command == one[: len(command)] for one in self.after) and not any(
            command == one[: len(command)] for one in self.before
        )


def parse_worker_shell(selector: Selector, arguments: Sequence[str]) -> WorkerShell | None:
    """Returns what a process with these arguments does beside the worker; None if it is no such.

    None too if it may start the worker once more or do other work after it, and if the selector
    means the shell: then the shell is a process of the worker, and its end is the worker's.
    """
    pattern = selector.command
    if pattern is None or selector.executable is not None or selector.pid_file is not None:
        return None
    names = [argument.rpartition("/")[2] for argument in arguments]
    is_starter = names and _STARTER.fullmatch(names[0])
    if any(map(_CLIENT.fullmatch, names if is_starter else names[:1])):
        return WorkerShell(asked=_unquoted(arguments))
    if (at := _text_index(names, arguments)) is None:
        return None
    if is_found(pattern, " ".join((*arguments[:at], *arguments[at + 1 :]))):
        return None
    try:
        commands = list(_commands(arguments[at].removeprefix(_COMMAND)))
    except ValueError:  # quotes that do not end, or a function
        return None
    found = [
        number
        for number, command in enumerate(commands)
        if is_found(pattern, " ".join(command)) and not _stays_open(command)
    ]
    if len(found) != 1 or _in_loop(commands, found[0]):
        return None
    before, after = commands[: found[0]], commands[found[0] + 1 :]
    if not all(map(_stays_open, after)):
        return None
    return WorkerShell(tuple(map(_bare, before)), tuple(map(_bare, after)))


def _unquoted(arguments: Sequence[str]) -> str:
    return re.sub(r"""['"\\]""", "", " ".join(arguments))


def _text_index(names: Sequence[str], arguments: Sequence[str]) -> int | None:
    """Returns which argument is the text that a shell was given with -c."""
    first = 0
    if names and _STARTER.fullmatch(names[0]):
        first = next((at for at, name in enumerate(names) if at and _SHELL.fullmatch(name)), 0)
    if not names or not (_SHELL.fullmatch(names[first]) or _TEXT_GIVER.fullmatch(names[first])):
        return None
    has_text = skip = False
    for at in range(first + 1, len(arguments)):
        argument = arguments[at]
        if skip:
            skip = False
        elif re.fullmatch(r"[-+][A-Za-z]+", argument):
            has_text = has_text or "c" in argument
            skip = argument.endswith("o")  # its value follows: `-o pipefail`
        elif argument == "--command":
            has_text = True
        elif has_text or argument.startswith(_COMMAND):
            return at
        elif not argument.startswith("-") and not _TEXT_GIVER.fullmatch(names[first]):
            return None  # a script, to which the rest belongs
    return None


def _commands(text: str) -> Iterator[Command]:
    """Yields the commands of a shell's text, without redirections. Raises ValueError."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        is_target = False
        for token in lexer:
            if is_target:
                is_target = False
            elif not token or not set(token) <= set("();<>|&"):
                command.append(token)
            elif "<" in token or ">" in token:
                is_target = True
            elif "()" in token:
                raise ValueError("a function, which may run at any time")
            else:
                yield tuple(command)
                command = []
        yield tuple(command)


def _bare(command: Command) -> Command:
    """Returns a command without the reserved words before it."""
    for number, word in enumerate(command):
        if not _RESERVED.fullmatch(word):
            return command[number:]
    return ()


def _stays_open(command: Command) -> bool:
    program, *arguments = _bare(command) or ("true",)
    name = program.rpartition("/")[2]
    if _SHELL.fullmatch(name):  # to type into: it runs neither a script nor a text
        return not any(not one.startswith("-") or "c" in one for one in arguments)
    return _OPEN.fullmatch(name) is not None


def _in_loop(commands: Sequence[Command], number: int) -> bool:
    """Whether a loop, which may start the command once more, is around it."""
    words = [word for command in commands[: number + 1] for word in command[:2]]
    return sum(map(words.count, _LOOP)) > words.count("done")
