"""Whether a command that has ended with exit status 0 has failed, by what it has printed last.

A pipe hides the status of its first program, and a script that of all but its last command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainwarden.run.policy import read_counts
from trainwarden.run.run_log import MAX_LINE, without_control

MAX_LINES_AFTER = 20
"""Lines after an error with which a program has gone on, whatever they say."""
MAX_LATE_LINES = 1
"""Lines with a step that a pipe may show after the traceback of the program that printed them.

With more, the program may as well have caught its error.
"""
MAX_SCRIPT_BYTES = 1 << 20
MAX_ARGUMENTS = 20
"""Arguments among which a script is looked for."""

_SHELL = re.compile(rb"-?(?:ba|da|z|k|a)?sh")
_STARTS_SHELL = re.compile(rb"#! ?\S*/(?:env (?:-S )?)?(?:ba|da|z|k|a)?sh\b")
_ECHO = re.compile(
    rb"""(?:^|[\s;&|({])(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?"""
    rb"""(?:"([^"$`\\%\n]*)|'([^'\\%\n]*)|([^\s"'$`\\%;&|<>(){}][^"'$`\\%;&|<>(){}\n]*))"""
)
"""What a shell prints itself, up to the first value."""
_MIN_LETTERS = 3
_ZERO = re.compile(rb"\W*0\b")
_PIPES = re.compile(rb"(?<![|>])\|(?!\|)")
_ENDS_PROCESSES = re.compile(rb"\b(?:kill|pkill|killall|timeout)\b")

_RANK = re.compile(rb"(?m)^\[(?:rank|default)\d+\]: ?")
_TRACEBACK = b"Traceback (most recent call last):"
_EXCEPTIONS = (
    re.compile(rb"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)(?:\(\w+\))?(?::.*)?"),
    re.compile(rb"[a-z_]\w*\.[\w.]+(?::.*)?|[A-Z]\w*:.*"),
)
"""The line of an exception, by its usual names; else of any."""
_SIGNALS = rb"(?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction)"
_DIED = re.compile(
    rb"(?m)^(?:\S+: line \d+: +\d+ " + _SIGNALS + rb"\b.*"
    rb"|" + _SIGNALS + rb"(?: \(core dumped\))?"
    rb"|zsh: (?:killed|segmentation fault|abort|bus error)\b.*)$"
)
"""How a shell reports that a signal has ended a program."""
_REPORT = re.compile(rb"(?ms)^={40,}$.*^={40,}$\n?")
"""What torchrun prints after its exception: which rank has failed."""
_FOLLOWS = re.compile(
    rb"wandb: |\[W\d+ |CUDA kernel errors might be asynchronously reported"
    rb"|For debugging consider passing CUDA_LAUNCH_BLOCKING|Compile with `TORCH_USE_CUDA_DSA`"
    rb"| *(?:\d+%\|.*\|)? *\d+/\d+ \[|\++ "
    rb"|\w{3} (?:\w{3} +\d+|\d+ \w{3} \d{4}) [\d:]{8}(?: [AP]M)? \w+(?: \d{4})?\s*$"
)
"""Lines that follow an exception which nobody caught: the rest of its message, the last words of a
tracker, a progress bar that is closed, commands that a shell with `set -x` shows, and `date`."""
_OF_TOTAL = re.compile(
    rb"(?i)\b(?:step|iter(?:ation)?|epoch)s?['\"]?[ :=#\[]{1,3}(\d{1,15}) ?(?:/|of) ?(\d{1,15})\b"
    rb"|\b(\d{1,15})/(\d{1,15}) ?\["
)
"""A count of a total: `step 45/110`, or a progress bar."""


class Script(NamedTuple):
    """What is known of the shell scripts in a command line."""

    is_known: bool
    """Whether there is one: any other program knows itself that it has failed."""
    echoes: tuple[bytes, ...]
    """How the lines begin that they print themselves."""
    ends_processes: bool
    """Whether they may end a process by a signal, as a helper of the run."""
    pipes: bool
    """Whether they have a pipe: what a program prints comes through it after its traceback."""

    def explains(self, line: bytes) -> bool:
        """Returns whether such a line may follow an error that nobody has caught.

        A script that prints 0 after its words may print the status of a program that has caught it.
        """
        if not self.is_known or _is_part(line):
            return self.is_known
        ends = [line.strip()[len(one) :] for one in self.echoes if line.strip().startswith(one)]
        return bool(ends) and not any(map(_ZERO.match, ends))


class FinalError(NamedTuple):
    """An error that a command has printed last, or nearly so."""

    line: str
    is_failure: bool
    """Whether the command has failed with it; else it may also have caught it."""


def read_script(argv: Sequence[str], folder: str) -> Script:
    """Returns what is known of the scripts that `argv` runs in `folder`."""
    texts = list(_scripts([os.fsencode(one) for one in argv[:MAX_ARGUMENTS]], folder))
    found = (b"".join(groups).strip() for text in texts for groups in _ECHO.findall(text))
    echoes = {one for one in found if len(re.findall(rb"[^\W\d_]", one)) >= _MIN_LETTERS}
    ends_processes = any(map(_ENDS_PROCESSES.search, texts))
    return Script(bool(texts), tuple(echoes), ends_processes, any(map(_PIPES.search, texts)))


def _scripts(argv: Sequence[bytes], folder: str) -> Iterator[bytes]:
    in_shell = before = False
    for number, argument in enumerate(argv):
        if in_shell and re.fullmatch(rb"-[a-z]*c[a-z]*", argv[number - 1]):
            yield argument
            continue
        text = b""
        with suppress(OSError, ValueError):
            path = Path(folder, os.fsdecode(argument))
            if path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES:
                text = path.read_bytes()
        if before or _STARTS_SHELL.match(text):
            yield text
        is_shell = _SHELL.fullmatch(argument.rpartition(b"/")[2]) is not None
        before = is_shell or (before and argument.startswith(b"-"))  # its options
        in_shell = in_shell or is_shell


def find_final_error(shown: bytes, argv: Sequence[str], folder: str) -> FinalError | None:
    """Returns the error that a command with exit status 0 has printed last; None without one.

    `argv` ran in `folder`, and has `shown` this last. It has failed if only its script has printed
    anything after the error, and steps were left. A program that makes a further step after an
    error has caught it; but behind a pipe its last step may come late.
    """
    text = _RANK.sub(b"", without_control(shown))
    for before, line, after in (*_traceback(text), *_death(text)):
        lines = [one for one in _REPORT.sub(b"", after).splitlines() if one.strip()]
        others = [one for one in lines if not _is_part(one)]
        script = read_script(argv, folder)
        if len(others) > MAX_LINES_AFTER or (not script.pipes and _goes_on(before, after)):
            continue
        late = [one for one in others if script.pipes and read_counts(one)]
        is_proof = _DIED.match(line) is None or (script.is_known and not script.ends_processes)
        is_explained = all(script.explains(one) for one in lines if one not in late)
        is_proof = is_proof and is_explained and len(late) <= MAX_LATE_LINES
        is_failure = is_proof and _has_steps_left(b"\n".join((before, after)))
        words = line.decode("utf-8", "replace").split()
        return FinalError(" ".join(words)[:MAX_LINE], is_failure)
    return None


def _traceback(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yields the exception of the last traceback, between what precedes and what follows it."""
    before, found, after = text.rpartition(_TRACEBACK)
    if not found or before.rstrip().rpartition(b"\n")[2].startswith(b"Exception ignored in"):
        return
    lines = after.splitlines()[1:]
    # what another stream shows may come between the lines of a traceback
    beside = [number for number, line in enumerate(lines) if line.strip() == line != b""]
    exceptions = (
        number for pattern in _EXCEPTIONS for number in beside if pattern.fullmatch(lines[number])
    )
    if (last := next(exceptions, None)) is not None:
        shown = [before, *(lines[number] for number in beside if number < last)]
        yield b"\n".join(shown), lines[last], b"\n".join(lines[last + 1 :])


def _death(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yields the same of the last report that a signal has ended a program."""
    for found in [*_DIED.finditer(text)][-1:]:
        yield text[: found.start()], found[0].strip(), text[found.end() :]


def _is_part(line: bytes) -> bool:
    return bool(_FOLLOWS.match(line) or _DIED.match(line))


def _goes_on(before: bytes, after: bytes) -> bool:
    known = read_counts(before)
    return any(count > known.get(what, -1) for what, count in read_counts(after).items())


def _has_steps_left(shown: bytes) -> bool:
    counts = [
        tuple(int(one) for one in found.groups() if one is not None)
        for found in _OF_TOTAL.finditer(shown)
    ]
    if not counts or any(step >= total for step, total in counts):
        return False
    step, total = counts[-1]
    return step + 1 < total
