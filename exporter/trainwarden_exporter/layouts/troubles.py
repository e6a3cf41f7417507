"""Lines that mean trouble in any run, whatever its framework.

Sources: PyTorch's ProcessGroupNCCL.cpp, CUDACachingAllocator.cpp and elastic agent, CUDA's error
strings, Ray's exceptions and memory monitor, vLLM's v1 engine, SGLang's launcher, errno(3).
"""

from __future__ import annotations

from trainwarden_exporter.layouts.base import LinePattern


def _trouble(name: str, *ways: str) -> LinePattern:
    return LinePattern(name, "|".join(ways), trouble=True)


SHARED: tuple[LinePattern, ...] = (
    _trouble(
        "gpu_out_of_memory",
        r"CUDA out of memory\. Tried to allocate",
        r"CUDA out of memory occurred",
        r"CUDA error: out of memory",
        r"HIP out of memory\.",
        r"\btorch\.(?:cuda\.)?OutOfMemoryError\b",
        r"CUBLAS_STATUS_ALLOC_FAILED",
    ),
    _trouble(
        "gpu_busy",
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        r"all CUDA-capable devices are busy or unavailable",
    ),
    _trouble(
        "gpu_fault",
        r"CUDA error: (?:an illegal memory access|device-side assert|unspecified launch failure"
        r"|uncorrectable ECC|misaligned address|an illegal instruction|the launch timed out"
        r"|unknown error|hardware stack error|invalid device ordinal|no CUDA-capable device)",
        r"CUDA driver initialization failed",
    ),
    _trouble(
        "nccl_timeout",
        r"Watchdog caught collective operation timeout",
        r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds",
        r"DistBackendError: .*wait timeout",
    ),
    _trouble(
        "nccl_error",
        r"NCCL error in: ",
        r"\bnccl(?:UnhandledCudaError|SystemError|InternalError|RemoteError|InvalidUsage)\b",
        r"NCCL communicator was aborted",
    ),
    _trouble(
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
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal",
        r"\bBus error\b.*shared memory|insufficient shared memory",
    ),
    _trouble(
        "connection_refused",
        r"Connection refused\b",
        r"\bConnectionRefusedError\b",
        r"Connect call failed",
        r"All connection attempts failed",
        r"Cannot connect to host",
    ),
    _trouble(
        "connection_lost",
        r"Connection reset by peer",
        r"\bConnectionResetError\b",
        r"\bBrokenPipeError\b",
        r"Server disconnected without sending a response",
        r"\bServerDisconnectedError\b",
        r"Remote end closed connection without response",
    ),
    _trouble(
        "disk_full",
        r"No space left on device",
        r"\bErrno 28\b",
        r"Disk quota exceeded",
        r"\bis over \d+% full, available space",
    ),
    _trouble(
        "not_writable",
        r"Read-only file system",
        r"\bErrno (?:13|30)\b",
        r"\bPermissionError: ",
    ),
    _trouble(
        "disk_error",
        r"\bErrno 5\b",
        r"Input/output error",
        r"Stale (?:NFS )?file handle",
    ),
    _trouble(
        "weight_update_timeout",
        r"(?i:(?:updat|sync|load|broadcast)(?:e|ing)?[ _]+(?:the +)?weights?\b.{0,120}"
        r"\b(?:timed out|timeout (?:after|exceeded|waiting)|TimeoutError))",
        r"(?i:(?:timed out|TimeoutError|ReadTimeout)\b.{0,120}"
        r"\b(?:update_weights|updat(?:e|ing) (?:the )?weights|weight[ _](?:update|sync)))",
        r"Timeout waiting for key '[^']*update_weights_from_disk",
    ),
    _trouble(
        "ray_death",
        r"\b(?:Actor|Worker|Node|Owner)(?:Died|Crashed)Error\b",
        r"\bRayActorError\b",
        r"\bActorUnavailableError\b",
        r"The actor died unexpectedly before finishing this task",
        r"The actor is dead because",
        r"A worker died or was killed while executing a task",
        r"raylet(?: process)? (?:has )?(?:died|is dead)",
    ),
    _trouble(
        "engine_died",
        r"\bEngineDeadError\b",
        r"EngineCore encountered a fatal error",
        r"Engine core proc \S+ died unexpectedly",
        r"EngineCore failed to start",
        r"Scheduler hit an exception",
        r"Received sigquit from a child process",
    ),
    _trouble(
        "process_killed",
        r"\bexitcode *: -?\d+ .*Signal \d+",
        r"failed \(exitcode: -\d+\)",
        r"Signal \d+ \(SIG(?:KILL|SEGV|ABRT|BUS|ILL|FPE)\) received by PID",
        r"\bSegmentation fault\b",
        r"\(core dumped\)",
        r"Fatal Python error: ",
    ),
    _trouble("exception", r"Traceback \(most recent call last\):"),
)
"""What all layouts have beside their own `lines`."""
