"""Recognises a process that waits for an operator, at a terminal or at the prompt of a debugger."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from trainwarden_exporter.processes.stacks.model import Frame
from trainwarden_exporter.processes.stacks.open_files import read_link
from trainwarden_exporter.processes.stacks.system_calls import READ, SELECT, read_call

_PROMPTS = (
    (r"(?:^|.*/)(?:cmd|pdb)\.py", r"_?cmdloop"),
    (r"(?:^|.*/)code\.py", r"raw_input"),
    (r".*/_pyrepl/.*", r".*"),
    (r".*/IPython/.*", r"cmdloop|prompt_for_code"),
    (r".*/prompt_toolkit/.*", r"prompt|prompt_async"),
    (r".*/(?:debugpy/|pydevd|_pydevd_bundle/).*", r"_?do_wait_suspend|wait_for_client"),
)
"""Files and functions, of CPython 3.9 to 3.14, IPython, prompt_toolkit, debugpy."""

TERMINAL = re.compile(r"/dev/(?:pts/\d+|tty\w*|console)")


def is_at_prompt(frames: Sequence[Frame]) -> bool:
    """Whether a stack waits at a prompt, which may also be one of a page in a browser.

    The calls before the prompt's are of libraries: what an operator has begun there is no prompt.
    """
    return any(
        re.fullmatch(file, one.file) and re.fullmatch(function, one.function.rpartition(".")[2])
        for one in takewhile(lambda one: one.is_of_library, frames)
        for file, function in _PROMPTS
    )


def reads_terminal(pid: int, root: Path) -> bool:
    """Whether the main thread of a process waits to read from a terminal.

    `input` has no frame: it reads, or GNU readline waits in a select for no file but the first.
    """
    call = read_call(f"{root}/{pid}")
    if call is not None and call.number in READ:
        file_number = call.arguments[0]
    elif call is not None and call.number in SELECT and call.arguments[0] == 1:
        file_number = 0
    else:
        return False
    return TERMINAL.fullmatch(read_link(f"{root}/{pid}/fd/{file_number}")) is not None
