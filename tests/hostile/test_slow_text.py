"""Text of other accounts, made so that a backtracking engine needs minutes for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.config import MAX_LINE_BYTES
from trainwarden_exporter.logs.re2_patterns import RegexSet, check_regex

PATIENCE = 120.0
UNITS = [
    *(
        " ",
        "\t",
        "a",
        "1",
        "1,",
        "=",
        "-",
        "'",
        "(",
        "[",
        "a.",
        "a/",
        "1:",
        "[a] ",
        "key=",
        "key =1",
    ),
    *(
        "key =1",
        "(a pid=1) ",
        "(a pid=1, ip=",
        "[repeated ",
        "np.float64(",
        "\x1b[",
        "\x1b]",
        "--a ",
    ),
    *("bearer ", "token=", "--token ", "://a:", ".py ", "python ", "-m ", "train", "serve "),
]
"""What a line or a command line repeats."""

LINES = """
import sys
from trainwarden_exporter.logs.line_parser import *
from trainwarden_exporter.progress.log_lines import parse_seconds
from trainwarden_exporter.runtime.redaction import redact
for unit in sys.argv[2:]:
    line = (unit * int(sys.argv[1]))[: int(sys.argv[1])]
    shorten_line(line), strip_prefixes(line), parse_number(line), number_of_key("key", line)
    parse_seconds(line), redact(line)
    parse_timestamp(strip_ansi(line.encode()), latest=1.8e9, fresh=False)
"""
COMMANDS = """
import sys
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.processes.selector import ProcessAttributes, Selector, matches_selector
patterns = {role.command for one in FRAMEWORKS for role in one.roles}
for unit in sys.argv[2:]:
    line = (unit * int(sys.argv[1]))[: int(sys.argv[1])]
    for pattern in sorted(patterns):
        process = ProcessAttributes(0)
        process.arguments = tuple(line.split(" "))
        assert matches_selector(Selector(command=pattern), process) is not None
"""


def patterns_of(part: object) -> list[LinePattern]:
    """All patterns of log lines in a layout."""
    if isinstance(part, LinePattern):
        return [part]
    if isinstance(part, tuple):
        return [found for one in part for found in patterns_of(one)]
    if is_dataclass(part):
        return [found for one in fields(part) for found in patterns_of(getattr(part, one.name))]
    return []


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: str(one.name))
def test_each_pattern_of_a_layout_runs_on_re2(framework: object) -> None:
    regexes = [check_regex(one.regex) for one in patterns_of(framework)]
    assert regexes
    compiled = RegexSet(regexes)
    for one in (compiled._any, compiled._set, *compiled._each):
        assert type(one).__module__.partition(".")[0] in ("re2", "_re2")


@pytest.mark.parametrize(
    ("program", "length"),
    [(LINES, 4 * MAX_LINE_BYTES), (COMMANDS, 256 << 10)],
    ids=["lines", "command lines"],
)
def test_slow_text_is_read_in_bounded_time(program: str, length: int, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", program, str(length), *UNITS],
        timeout=PATIENCE,
        check=True,
        cwd=tmp_path,
    )
