"""When a command that has ended is started again without a request."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from getopt import GetoptError, getopt

from trainwarden.run.announcement import Announcement
from trainwarden.run.launcher import NOT_EXECUTABLE, NOT_FOUND

NEVER, ON_FAILURE, ON_REQUEST = "never", "on-failure", "on-request"
POLICIES = (NEVER, ON_FAILURE, ON_REQUEST)

STOP_SECONDS = 60.0
"""An end within this time after a signal of the user is the result of it."""
UNCOUNTED_STOP_SECONDS = 3600.0
"""The same of a command that shows no count of its steps."""
IGNORED_STEPS = 3
"""Steps after such a signal with which the command has ignored it; one or two end what it began."""
STEADY_SECONDS = 600.0
"""A command that ran for this long did not fail because of its last start."""
AT_ONCE_SECONDS = 10.0
"""A user still looks at the terminal so soon after a start; imports have failed by then."""
CLOCK_ERROR_SECONDS = 0.1
_TIMEOUT_OPTIONS = ("kill-after=", "signal=", "foreground", "preserve-status", "verbose")
AT_ONCE_ENDS = 2
"""Such failures, and no other start, after which a command is not started again."""
_NO_PROGRAM = re.compile(
    rb"\S*\bpython[\w.-]*: (?:can't open file '|can't find '__main__' module in '"
    rb"|No module named |Error while finding module specification for ')"
)
"""How Python ends if there is no script or module of the name that it is to run."""
MAX_FAILURES = 5
MAX_DELAY_SECONDS = 60.0


class FailureCount:
    """Counts failures in a row, each soon after its start."""

    def __init__(self) -> None:
        self._count = 0

    def next_delay(self, lasted: float) -> float | None:
        """Returns the seconds to wait before the next start; None if there were too many."""
        self._count = 1 if lasted >= STEADY_SECONDS else self._count + 1
        if self._count > MAX_FAILURES:
            return None
        return min(float(1 << (self._count - 1)), MAX_DELAY_SECONDS)


_COUNT = re.compile(
    rb"(?i)\b(step|iter(?:ation)?|epoch)s?['\"]?[ :=#\[]{1,3}(\d{1,15})|(\d{1,15})(/\d+|it) ?\["
)
"""A count as it is usually printed: `step 10`, or a progress bar."""


class UserStop:
    """A signal with which the user ends the command. `shown` is what it has printed last."""

    def __init__(self, shown: bytes) -> None:
        self._at = time.monotonic()
        self._counts = read_counts(shown)

    def explains(self, status: int, shown: bytes) -> bool:
        """Returns whether the command has ended because of it, with the wait status `status`."""
        return is_stop(status, time.monotonic() - self._at, self._counts, read_counts(shown))


def is_stop(
    status: int, seconds: float, before: Mapping[bytes, int], after: Mapping[bytes, int]
) -> bool:
    """Returns whether an end `seconds` after a signal of the user is the result of it.

    A trainer may save for long before it ends. But a command that counts on, from `before` to
    `after`, has ignored the signal: when it fails hours later, the user has not asked for that.
    """
    if seconds < STOP_SECONDS or status in (signal.SIGINT, (128 + signal.SIGINT) << 8):
        return True
    if common := before.keys() & after.keys():
        return all(after[one] < before[one] + IGNORED_STEPS for one in common)
    return seconds < UNCOUNTED_STOP_SECONDS


def read_counts(shown: bytes) -> Mapping[bytes, int]:
    """Returns the last counts in a text, each by what it counts: a name, or the total of a bar."""
    found = (one.groups() for one in _COUNT.finditer(shown))
    return {(name or total).lower(): int(step or done) for name, step, done, total in found}


def end_state(status: int, *, stopped: bool, finishes: bool) -> str:
    """Returns the state after an end with the wait status `status`.

    `stopped` is whether the user has ended the command, `finishes` whether exit status 0 is the end
    of the run; of a server it is a failure.
    """
    if stopped:
        return "stopped"
    return "finished" if status == 0 and finishes else "failed"


def failed_at_once(lasted: float, status: int, shown: bytes) -> bool:
    """Returns whether a command has failed in its first seconds, before any step.

    So ends a mistyped one: who sits before the terminal has seen it, and is not to be called.
    """
    return lasted < AT_ONCE_SECONDS and os.WIFEXITED(status) and not read_counts(shown)


def never_works(announcement: Announcement, shown: bytes, *, at_once: bool) -> bool:
    """Returns whether no further start of a command helps, after the end of the last one.

    There is no program to start, or it has failed in the first seconds of each start, always alike:
    a missing file or a wrong option. A command that has worked may wait for a port or for memory.
    Counts an end `at_once`, which the next save announces. `shown` is what it has printed last.
    """
    content, statuses = announcement.content, {one[2] for one in announcement.exits}
    count = content["failures_at_once"] = content.get("failures_at_once", 0) + at_once
    if content["starts"] != count or len(statuses) != 1:
        return False
    is_missing = os.waitstatus_to_exitcode(*statuses) in (NOT_EXECUTABLE, NOT_FOUND)
    no_program = _NO_PROGRAM.match(shown.rstrip().rpartition(b"\n")[2]) is not None
    return count >= AT_ONCE_ENDS or is_missing or no_program


def is_time_over(argv: Sequence[str], lasted: float, status: int) -> bool:
    """Returns whether the command is `timeout`, and has ended because its time was over.

    Its exit status is 124, 137 after SIGKILL, or with `--preserve-status` that of the program that
    it runs. `status` is its wait status.
    """
    if os.path.basename(argv[0]) not in ("timeout", "gtimeout"):  # noqa: PTH119
        return False
    try:
        options, rest = getopt(list(argv[1:]), "k:s:fpv", _TIMEOUT_OPTIONS)
        number, unit = rest[0].rstrip("smhd"), rest[0][-1]
        limit = float(number) * {"m": 60.0, "h": 3600.0, "d": 86400.0}.get(unit, 1.0)
    except (GetoptError, ValueError, IndexError):
        return False
    preserves = any(name in ("-p", "--preserve-status") for name, _ in options)
    ended_it = os.waitstatus_to_exitcode(status) in (124, 137, -signal.SIGKILL)
    return (preserves or ended_it) and 0 < limit <= lasted + CLOCK_ERROR_SECONDS


def waits_for_remediator(state: str, policy: str, *, detached: bool) -> bool:
    """Returns whether a command that has ended in `state` waits for a request to start it again.

    What this program restarts after a failure, the remediator does not: its attempts would add up
    to those of this program.
    """
    return state == "failed" and policy == ON_REQUEST and detached


def describe_restart(announcement: Announcement) -> str:
    """Returns the line of the log between two processes; empty before the first.

    The exporter dates what was printed before by it. The start of a process is known to a few
    hundredths of a second only, and must not seem to be earlier.
    """
    ended, status = announcement.content["ended_at"], announcement.content["exit_status"]
    if ended is None or status is None:
        return ""
    moment = ended - CLOCK_ERROR_SECONDS
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    ended_at = f"{seconds}.{int(moment % 1 * 1000):03d}Z"
    return f"trainwarden: {ended_at} {_end_of(announcement, status)}; starts again"


_NO_INPUT = "EOFError: EOF when reading a line"
"""The last line of a program of Python that called `input`."""


def describe_end(announcement: Announcement, status: int) -> str:
    """Returns how the process ended, for the log and the terminal, and what it has left alive."""
    content = announcement.content
    asked = content["last_lines"][-1:] == [_NO_INPUT]
    no_input = "it asked for input and had none: with `--detach`, nobody can type" if asked else ""
    is_hidden = status == 0 and content["state"] == "failed" and content["finishes"]
    hidden = "its last lines are those of a failure, with steps left" if is_hidden else ""
    parts = (_end_of(announcement, status), no_input, content.get("left"), hidden)
    return "; ".join(filter(None, parts))


def _end_of(announcement: Announcement, status: int) -> str:
    how = f"with exit status {os.WEXITSTATUS(status)}"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        known = {one.value: one.name for one in signal.Signals}
        how = f"by {known.get(number, f'signal {number}')}"
    return f"process {announcement.content['pid']} ended {how}"


def describe_prospect(
    state: str,
    policy: str,
    *,
    waits: bool,
    delay: float | None,
    over: bool = False,
    never_works: bool = False,
) -> str:
    """Returns who starts a command again that has ended in `state`; "" after a normal end.

    `waits` is whether it waits for the remediator, `delay` the time in seconds until this program
    starts it, `over` whether its own time limit has ended it, `never_works` whether no start helps.
    """
    if state == "stopped" and over:
        return "the time you gave it is over: nobody starts it again"
    if state == "stopped":
        return "stopped by you: nobody starts it again"
    if state != "failed":
        return ""
    if delay is not None:
        return f"`--restart {ON_FAILURE}` starts it again in {delay:g} s"
    if waits:
        return "it waits an hour for the remediator, which starts it again in the mode act"
    if never_works:
        return "nobody starts it again: a further start would fail within seconds, too"
    if policy == ON_FAILURE:
        return f"nobody starts it again: it failed {MAX_FAILURES + 1} times, soon after each start"
    hint = "" if policy == NEVER else f" (`--restart {ON_FAILURE}` or `--detach` would)"
    return f"nobody starts it again{hint}"
