"""Log lines that report an error in any run, whatever its framework.

Sources: PyTorch's ProcessGroupNCCL.cpp, CUDACachingAllocator.cpp and elastic agent, CUDA's error
strings, Ray's exceptions and memory monitor, vLLM's v1 engine, SGLang's launcher, errno(3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from trainwarden_exporter.frameworks.base import LinePattern, error_line
from trainwarden_exporter.frameworks.common_patterns import RESTARTED
from trainwarden_exporter.runtime.formatting import shorten
from trainwarden_exporter.runtime.redaction import redact

MAX_SHOWN = 200
"""Characters of an error that is shown in a sentence."""

SHOWN_LINES = 3
"""Last lines that are shown of a log without an error."""

TRACEBACK = "exception"
"""Name of the pattern of a traceback, whose line says nothing of the exception."""

_TRACEBACK_LINE = r"Traceback \(most recent call last\):"

_OUT_OF_GPU_MEMORY = (
    r"CUDA out of memory\. Tried to allocate|CUDA out of memory occurred"
    r"|CUDA error: (?:out of memory|CUBLAS_STATUS_ALLOC_FAILED)|HIP out of memory\."
)
_EXCEPTION_OF_GPU_MEMORY = (
    r"(?:torch\.(?:cuda\.)?OutOfMemoryError(?::|\s*$|\s*\[)"
    rf"|[\w.]+Error: {{1,2}}(?:{_OUT_OF_GPU_MEMORY}|CUDA out of memory))"
)
# An exception that nobody caught begins its line, behind the prefixes of loggers and launchers.
# RE2 has no look-behind: the second is what else may precede it.
_TIME = r"\d[\dT:.,/Z+-]{4,}\s+(?:\d[\d:.,Z+-]{4,}\s+)?"
_LEVEL = r"(?:ERROR|CRITICAL|FATAL):?\s+"
_BEGINS_LINE = rf"(?:^\s*|[\]\)\|>-]\s*|[\]\)]:\s*)(?:{_TIME})?(?:{_LEVEL})?"
_IN_A_SENTENCE = (
    r"(?:[^\s\]\)\|>:A-Z\d-]\s+|[a-z]\s+\d+\s+|[^\s\]\)A-Z]:\s*|(?:WARN|WARNING|INFO|DEBUG):?\s+"
    r"|[^\s\w.\]\)\|>:-])"
)
_NO_EXCEPTION = (
    r"(?:^|[^: ]|[^: ] |"
    r"(?:[^r\)]|[^o]r|[^r]or|[^r]ror|[^E]rror|\bError|[^\(]\)|[^t]\(\)): {1,2})"
)
"""What may precede the message, other than `…Error: ` and `what(): `."""

COMMON_ERROR_PATTERNS: tuple[LinePattern, ...] = (
    error_line(
        "gpu_out_of_memory",
        r"what\(\): {1,2}(?:CUDA out of memory|CUDA error: out of memory|HIP out of memory)",
        _BEGINS_LINE + _EXCEPTION_OF_GPU_MEMORY,
    ),
    # Its message without the exception, or both in a sentence: who logs it has caught it, and may
    # try again with less.
    error_line(
        "oom_thrown",
        r"CUDA OOM errors thrown\.",
        r"torch\.(?:cuda\.)?OutOfMemoryError(?:[^:\w\s\[]|\s+[^\s\[])",
        rf"{_NO_EXCEPTION}(?:{_OUT_OF_GPU_MEMORY})",
        r"\b(?i:error|critical|fatal|warn|warning)\b\W{1,4}CUDA out of memory",
        _IN_A_SENTENCE + _EXCEPTION_OF_GPU_MEMORY,
    ),
    error_line(
        "gpu_busy",
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        r"all CUDA-capable devices are busy or unavailable",
    ),
    error_line(
        "gpu_fault",
        r"CUDA error: (?:an illegal memory access|device-side assert|unspecified launch failure"
        r"|uncorrectable ECC|misaligned address|an illegal instruction|the launch timed out"
        r"|unknown error|hardware stack error|invalid device ordinal|no CUDA-capable device)",
        r"CUDA driver initialization failed",
    ),
    error_line(
        "nccl_timeout",
        r"Watchdog caught collective operation timeout",
        r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds",
        r"DistBackendError: .*wait timeout",
    ),
    error_line(
        "nccl_error",
        r"NCCL error in: ",
        r"\bnccl(?:UnhandledCudaError|SystemError|InternalError|RemoteError|InvalidUsage)\b",
        r"NCCL communicator was aborted",
    ),
    error_line(
        "host_out_of_memory",
        r"Task was killed due to the node running low on memory",
        r"Workers \(tasks / actors\) killed due to memory pressure",
        r"\bray\.exceptions\.OutOfMemoryError\b",
        r"\bOut of memory: Killed process\b",
        r"\boom-kill:",
        r"Cannot allocate memory",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        r"std::bad_alloc",
        r"^MemoryError\b|[ :]MemoryError: ",
        r"\bBus error\b.*shared memory|insufficient shared memory",
    ),
    error_line(
        "connection_refused",
        r"Connection refused\b",
        r"\bConnectionRefusedError\b",
        r"Connect call failed",
        r"All connection attempts failed",
        r"Cannot connect to host",
    ),
    error_line(
        "connection_lost",
        r"Connection reset by peer",
        r"\bConnectionResetError\b",
        r"\bBrokenPipeError\b",
        r"Server disconnected without sending a response",
        r"\bServerDisconnectedError\b",
        r"Remote end closed connection without response",
    ),
    error_line(
        "disk_full",
        r"No space left on device",
        r"\bErrno 28\b",
        r"Disk quota exceeded",
        r"\bis over \d+% full, available space",
    ),
    error_line(
        "not_writable", r"Read-only file system", r"\bErrno (?:13|30)\b", r"\bPermissionError: "
    ),
    error_line(
        "disk_error",
        r"\bErrno 5\b",
        r"Input/output error",
        r"Stale (?:NFS )?file handle",
        r"\bI/O error, dev \w+, sector \d+",
        r"Buffer I/O error on dev",
        r"\b(?:EXT4|BTRFS)(?:-fs)? error|\bXFS \([\w-]+\): .*(?:I/O error|[Cc]orrupt)",
        r"\bcritical medium error, dev ",
    ),
    error_line("weight_update_failed", r"(?i:\bweights?[ _](?:update|sync) failed\b)"),
    error_line(
        "environment_missing",
        r"(?:\bModuleNotFoundError|python[\d.]*): No module named ",
        r"(?i:\benvironment(?: ['\"]?[\w./-]+['\"]?)? not found\b)",
        r"\b[\w./-]+: command not found\b",
        r"python[\d.]*: can't open file '[^']*': \[Errno 2\]",
    ),
    error_line(
        "weight_update_timeout",
        r"(?i:(?:updat|sync|load|broadcast)(?:e|ing)?[ _]+(?:the +)?weights?\b.{0,120}"
        r"\b(?:timed out|timeout (?:after|exceeded|waiting)|TimeoutError))",
        r"(?i:(?:timed out|TimeoutError|ReadTimeout)\b.{0,120}"
        r"\b(?:update_weights|updat(?:e|ing) (?:the )?weights|weight[ _](?:update|sync)))",
        r"Timeout waiting for key '[^']*update_weights_from_disk",
    ),
    error_line(
        "ray_death",
        r"\b(?:Actor|Worker|Node|Owner)(?:Died|Crashed)Error\b",
        r"\bRayActorError\b",
        r"\bActorUnavailableError\b",
        r"The actor died unexpectedly before finishing this task",
        r"The actor is dead because",
        r"A worker died or was killed while executing a task",
        r"raylet(?: process)? (?:has )?(?:died|is dead)",
    ),
    error_line(
        "engine_died",
        r"\bEngineDeadError\b",
        r"EngineCore encountered a fatal error",
        r"Engine core proc \S+ died unexpectedly",
        r"EngineCore failed to start",
        r"Scheduler hit an exception",
        r"Received sigquit from a child process",
    ),
    error_line(
        "process_killed",
        r"\bexitcode *: -?\d+ .*Signal \d+",
        r"failed \(exitcode: -\d+\)",
        r"Signal \d+ \(SIG(?:KILL|SEGV|ABRT|BUS|ILL|FPE)\) received by PID",
        r"Fatal Python error: ",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal",
    ),
    # One of the run, or a process of a sandbox or a pool, whose crash the run gets over.
    error_line(
        "child_ended",
        r"\bSegmentation fault\b",
        r"\(core dumped\)",
        r"\bBrokenProcessPool\b",
        r"\bexited with code (?:-\d+|[1-9]\d*)\b",
        # the shell's report of a SIGKILL
        r"^Killed *$|: line \d+: +\d+ Killed\b|^\[\d+\][-+]? +Killed\b",
    ),
    error_line(TRACEBACK, _TRACEBACK_LINE),
)
"""Searched in all logs, besides the `lines` of the framework."""

CLIENT_ERRORS = {
    "connection_refused": "peer_unreachable",
    "connection_lost": "peer_connection_failed",
}
"""Names of these patterns in a run without a server: its client of another one tries again."""

OTHER_NAMES = CLIENT_ERRORS | {name: usual for usual, name in CLIENT_ERRORS.items()}
"""The other name of a pattern that has two. A configuration may use either in any run."""

FATAL_LINES = frozenset(
    (
        "gpu_out_of_memory",
        "gpu_fault",
        "nccl_timeout",
        "nccl_error",
        "host_out_of_memory",
        "ray_death",
        "engine_died",
        "process_killed",
    )
)
"""Patterns of errors that end a trainer. Not `exception`: a caught exception is logged in the same
form, and so are exceptions at the end of a successful program."""

FATAL_PREFIX = "fatal_"
"""Prefix of configured patterns of errors that end a run."""

_BEGINS_TRACEBACK = re.compile(_TRACEBACK_LINE)
_EXCEPTION = re.compile(r"^(?:\S{0,60}\s){0,6}?[\w.]*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
_AFTER_FRAMES = re.compile(r"(?!trainwarden:)[A-Za-z_][\w.]*(?::|$)")
"""Any exception at the end of a traceback: the first line that is not indented, unless
`trainwarden run` wrote it because the process was killed."""

WRONG_USAGE = (
    r"^\S+\.py(?: [\w-]+)*: error: "
    r"|^[\w.-]+(?: [\w-]+)*: error: (?:unrecognized arguments: |ambiguous option: "
    r"|the following arguments are required: |argument \S+: |one of the arguments )"
    r"|^Error: (?:No such (?:option|command)\b|Missing (?:argument|option|parameter)\b"
    r"|Invalid value for |Got unexpected extra argument)"
)
"""The last line of Python's argparse, and of click, before their programs exit. No alert has it:
such a program has done nothing."""

_BAR = re.compile(r"\d%\s*\||[\u2501\u2588]{3}|\[[=#>. -]{5,}\]")
"""A progress bar: of tqdm, rich, Keras and pip."""

_CHILD_FAILED = re.compile(
    r"\bCalledProcessError: .*non-zero exit status|\bChildFailedError\b"
    r"|\bProcessExitedException: .*with exit code"
)
"""An exception of a launcher, which says nothing of the cause; with a signal it does."""


def exception_lines(lines: Iterable[str], *, in_traceback: bool = False) -> Iterator[str]:
    """Yields the lines that name an exception, such as `ValueError: no such dataset`.

    `in_traceback` is whether the lines before these began a traceback.
    """
    for line in lines:
        if _BEGINS_TRACEBACK.search(line):
            in_traceback = True
        elif _EXCEPTION.match(line) or (in_traceback and _AFTER_FRAMES.match(line)):
            in_traceback = False
            yield line


def last_error(lines: Sequence[str]) -> str:
    """Returns the last line that reports an error: the exception, not its traceback; else "".

    Of a launcher whose child failed, that is the error of the child, if the same process shows it.
    """
    raised = set(exception_lines(lines))
    specific = [one.regex for one in COMMON_ERROR_PATTERNS if one.name != TRACEBACK]
    specific.append(WRONG_USAGE)
    launcher = ""
    for line in reversed(lines):
        if launcher and re.search(RESTARTED.regex, line):
            break
        if line in raised or any(re.search(regex, line) for regex in specific):
            if not _CHILD_FAILED.search(line):
                return line.strip()
            launcher = launcher or line.strip()
    return launcher


def shown_error(lines: Sequence[str]) -> str:
    """Returns `last_error` as pages show it: printable, short, and without secrets."""
    return as_shown(last_error(lines))


def last_lines(lines: Sequence[str], count: int = SHOWN_LINES) -> str:
    """Returns the last lines of a program as pages show them, on one line, without its bars."""
    own = (one for one in lines if one.strip() and not one.startswith("trainwarden:"))
    return " | ".join([as_shown(one.strip()) for one in own if not _BAR.search(one)][-count:])


def shown_end(lines: Sequence[str]) -> str:
    """Returns what the last lines show of a failure: the last error, or else the last line."""
    last = last_lines(lines, 1)
    return shown_error(lines) or (last and f"last line: {last}")


def as_shown(line: str) -> str:
    """Returns a line of an error so: printable, short, and without secrets."""
    return shorten("".join(c if c.isprintable() else " " for c in redact(line)), MAX_SHOWN)
