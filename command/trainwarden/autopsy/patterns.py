"""Lines that matter after the fact, besides those of the framework and the common errors.

Sources: dmesg and journalctl of Linux 5 and 6 (mm/oom_kill.c), last(1), Slurm 21 to 24
(slurmstepd), Docker's events, git's clone, nvidia-smi, lsof(8), and the five reports in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS, WRONG_USAGE

_NUMBER = r"\d+(?:\.\d+)?"

ENDINGS = (
    LinePattern("time_limit", r"CANCELLED AT .* DUE TO TIME LIMIT|JOB \d+ .*TIME LIMIT"),
    LinePattern(
        "preempted",
        r"CANCELLED AT .* DUE TO (?:PREEMPTION|NODE FAILURE)"
        r"|(?i:\b(?:spot|preemptible)\b.{0,40}\b(?:interrupt|reclaim|terminat|preempt))"
        r"|(?i:\b(?:instance|node|pod) (?:is being|was|has been|will be) "
        r"(?:preempted|reclaimed|evicted))",
    ),
    LinePattern("cancelled", r"\*{3} (?:JOB|STEP) [\d._]+ ON \S+ CANCELLED AT "),
    LinePattern(
        "interrupted",
        r"^(?:\[rank\d+\]: *)?KeyboardInterrupt\b|^Detected KeyboardInterrupt\b"
        r"|\bReceived SIGINT\b|\bSIGINT received\b|(?i:\b(?:training )?manually stopped\b)|^\^C",
    ),
    LinePattern(
        "terminated",
        r"(?i:\breceived SIGTERM\b)|SignalException: .* got signal: 15"
        r"|\bReceived signal 15\b|\bSIGTERM received\b",
    ),
)
"""The end came from outside."""

FINISHED = LinePattern(
    "run_finished",
    r"\btrain_runtime +=|(?i:^\W*(?:training|study|run) (?:is )?(?:finished|completed?|done)"
    r"(?:[.!]*\s*$|[.!,]? (?:in|after|at|successfully|do not forget)\b))",
    Phase.FINISHED,
)

IS_DONE = re.compile(r"^\W*(?i:(?:all )?(?:done|finished|completed?))\W*$")
DONE = LinePattern("done", IS_DONE.pattern, Phase.FINISHED)
"""Only after the last step: a save or an evaluation ends with the same word."""

STARTS = (
    LinePattern(
        "resumed_at",
        r"(?i:\b(?:resum(?:ed|ing|es?)|continu(?:ed|ing)|restart(?:ed|ing)) "
        r"(?:training )?(?:at|from|with) (?:the )?(?:checkpoint )?(?:of |at )?"
        r"(?:global[ _])?(?:step|iteration)[ =:]*(?P<step>\d+))",
        Phase.STARTING,
    ),
    # what `trainwarden run` writes into the log between two processes
    LinePattern(
        "started_again",
        r"^trainwarden: \S+ process \d+ ended (?:with|by) [^;]+; starts again$",
        Phase.STARTING,
    ),
    LinePattern("process_ended", r"^trainwarden: process \d+ ended (?:with|by) "),
    LinePattern("restart_requested", r"^trainwarden: restart requested by the remediator$"),
    LinePattern("stop_requested", r"^trainwarden: stop requested$"),
    LinePattern(
        "start",
        r"(?i:\bstart(?:ing)? container\b|\bcontainer (?:start|restart)(?:ed|ing)?\b)"
        r"|^Cloning into '",
    ),
    LinePattern(
        "start_failed",
        r"fatal: destination path '[^']*' already exists and is not an empty directory"
        r"|(?i:\bexec .*: no such file or directory\b)"
        r"|CrashLoopBackOff|Back-off restarting failed container",
    ),
    LinePattern(
        "exit_status",
        r"(?i:\bexit(?:ed)?(?: with)?(?: status| code)?[ =:(]*(?P<exit_status>\d{1,3})\b)"
        r"|\bexitCode=(?P<exit_code>\d{1,3})",
    ),
)

MEMORY = (
    LinePattern(
        "brake",
        r"(?i:\bemergency brake\b.{0,60}\b(?:fired|triggered|activated|killed|kill|stop|abort|prun)"
        r"|\bemergency brake\b[:!]"
        r"|\b(?:low memory|memory (?:is )?low)\b.{0,60}\b(?:kill|abort|prun|skip|stop))"
        r"|Kill trial\b|-> ?Kill trial",
    ),
    LinePattern(
        "memory_level",
        rf"(?i:\bmemory(?: usage| used)?[:=]? *(?P<memory_used>{_NUMBER}) ?G(?:i?B)?"
        rf" ?/ ?(?P<memory_total>{_NUMBER}) ?G(?:i?B)?(?: *\((?P<memory_percent>{_NUMBER})%\))?)",
    ),
    LinePattern(
        "memory_available", rf"(?i:\bavailable[:=]? *(?P<memory_available>{_NUMBER}) ?G(?:i?B)?)"
    ),
)

WATCHDOG = (
    LinePattern(
        "worker_dead", r"(?i:\bworkers?\b.{0,80}\b(?:died|dead|not running|missing|crashed|gone)\b)"
    ),
    LinePattern("worker_restarted", r"(?i:\b(?:re)?start(?:ed|ing)\b.{0,60}\bworker)"),
    LinePattern("worker_healthy", r"(?i:\bworkers?\b.{0,80}\bhealthy\b)"),
)

SYSTEM = (
    LinePattern(
        "boot",
        r"\bLinux version \d+\.\d+|^-- Boot [0-9a-f]{8,} --|^-- Reboot --|^reboot +system boot"
        r"|(?i:\bsystem (?:has )?(?:crashed and )?(?:rebooted|reboot(?:ing)?)\b)"
        r"|systemd\[1\]: Startup finished in",
    ),
    LinePattern("kernel_panic", r"Kernel panic - not syncing|\bsoft lockup\b|\bhard LOCKUP\b"),
    LinePattern("xid", r"NVRM: Xid \([^)]*\): (?P<xid>\d+)"),
    LinePattern(
        "oom_kill", r"[Oo]ut of memory: Killed process \d+|\boom-kill:|\boom_reaper: reaped"
    ),
)

GPU = (
    LinePattern(
        "gpu_exclusive",
        r"\bExclusive[_ ]Process\b|\bE\. Process\b|(?i:\bcompute[_ ]mode\b.{0,20}\bexclusive)",
    ),
    LinePattern("gpu_holder", r"^\S+ +\d+ +.* /dev/nvidia\d+\b|^/dev/nvidia\d+: +[\d ]+"),
)

CAUSES_IN_LOGS = (
    LinePattern("wrong_usage", WRONG_USAGE),
    LinePattern("port_in_use", r"\bAddress already in use\b|\bErrno 98\b|\bEADDRINUSE\b"),
    LinePattern(
        "raised",
        r"^(?:\[?rank ?\d+\]?: *)?(?:\S{0,60}\s){0,6}?(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
        r"(?:Error|Exception|Interrupt|Exit)\b(?::|$)",
    ),
    # of PyTorch's writer of checkpoints, which has no errno
    LinePattern(
        "write_failed", r"PytorchStreamWriter failed writing file|unexpected pos \d+ vs \d+"
    ),
    # the level of a logger
    LinePattern("logged_error", r"(?:^|[\s\[|])(?:ERROR|CRITICAL|FATAL)(?:[\]|:\s]|$)"),
)

NOT_FINITE = "loss_not_finite"
"""Kind of the lines with a loss that is NaN or infinite; the steps in them go on."""

FIRST_LINE = "first_line"
"""Name of the pattern of the line that a file begins with: it recurs at each start of a program
whose output is appended."""
_FIRST_LINE_WORDS = re.compile(rb"[A-Za-z]{3}")
MAX_FIRST_LINE = 200

EVERYWHERE = (*ENDINGS, FINISHED, DONE, *STARTS, *MEMORY, *GPU, *CAUSES_IN_LOGS)
BY_SOURCE: Mapping[str, tuple[LinePattern, ...]] = {
    "log": EVERYWHERE,
    "gpu": EVERYWHERE,
    "kernel": (*EVERYWHERE, *SYSTEM),
    "watchdog": (*EVERYWHERE, *SYSTEM, *WATCHDOG),
}
"""By what wrote a file: a training also prints the version of Linux, and lists what is missing."""

ALL = frozenset((*EVERYWHERE, *SYSTEM, *WATCHDOG))

ERRORS = frozenset(
    (
        *(pattern.name for pattern in COMMON_ERROR_PATTERNS),
        "start_failed",
        "port_in_use",
        "kernel_panic",
        "xid",
        "oom_kill",
        "worker_dead",
        "brake",
    )
)
"""Counted as errors, with those of the framework."""


def first_line_pattern(sample: bytes) -> LinePattern | None:
    """Returns a pattern of the first line of a log, with any numbers; None if it is too general."""
    line = next((one for one in sample.splitlines() if one.strip()), b"")
    text = line.decode("ascii", errors="ignore")
    usable = len(line) == len(text) <= MAX_FIRST_LINE and text.isprintable()
    if not usable or len(_FIRST_LINE_WORDS.findall(line)) < 2:  # noqa: PLR2004 - one word recurs by chance
        return None
    regex = "^" + r"\d+".join(map(re.escape, re.split(r"\d+", text.rstrip()))) + r"\s*$"
    lines = sample.decode("ascii", errors="replace").splitlines()
    recurring = sum(re.match(regex, one) is not None for one in lines)
    # a start is followed by at least one other line
    if 2 * recurring > len(lines) + 2:
        return None
    return LinePattern(FIRST_LINE, regex)
