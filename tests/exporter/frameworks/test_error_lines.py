from __future__ import annotations

import pytest
import re2  # type: ignore[import-untyped]

from framework_lines import ANSI, LINES
from trainwarden_exporter.frameworks.error_lines import (
    COMMON_ERROR_PATTERNS,
    MAX_SHOWN,
    last_error,
    last_lines,
    shown_end,
    shown_error,
)
from trainwarden_exporter.progress.specs import TRAINER, is_fatal

QUOTED = {
    "gpu_out_of_memory": (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
            "total capacity of 15.99 GiB of "
            "which 1.21 GiB is free."
        ),
        "RuntimeError: CUDA error: out of memory",
        "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
            "requests."
        ),
        "RuntimeError: CUDA out of memory",
        "[default0]:torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory.",
        "torch.cuda.OutOfMemoryError",
        "  what():  CUDA out of memory. Tried to allocate 2.00 GiB",
        "INFO | worker.py:5 - torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "2026-11-29 10:00:00 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "2026-11-29T10:00:00.123Z RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "10:00:00,123 torch.cuda.OutOfMemoryError",
        "ERROR: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "2026-11-29 10:00:00 ERROR torch.OutOfMemoryError: CUDA out of memory.",
    ),
    "oom_thrown": (
        "WARNING:root:batch size 64 failed: CUDA out of memory. Tried to allocate 2 GB",
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
        "trying half the batch (CUDA error: out of memory)",
        "sampling failed: HIP out of memory. Tried to allocate 20.00 MiB",
        "1 CUDA OOM errors thrown.",
        "worker: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Error: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ERROR: CUDA out of memory",
        "2026-11-29 10:00:00 ERROR CUDA out of memory, skipping the batch",
        "2026-11-29 10:00:00 attempt 2 torch.OutOfMemoryError: CUDA out of memory.",
        "WARNING: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "ERROR:root:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "(worker 3): CUDA out of memory. Tried to allocate 2.00 GiB",
        "Batch too large for error: CUDA out of memory. Tried to allocate 2.00 GiB, retrying",
        "Caught exception torch.cuda.OutOfMemoryError, halving the batch size",
        "Caught torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB; retrying",
        "attempt 2 failed: RuntimeError: CUDA error: out of memory",
        "halving (RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB)",
    ),
    "gpu_busy": (
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "torch.AcceleratorError: CUDA error: all CUDA-capable devices are busy or unavailable",
    ),
    "gpu_fault": (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: device-side assert triggered",
        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    ),
    "nccl_timeout": (
        (
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=123, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 "
            "milliseconds before timing out."
        ),
        (
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
            "monitoring enqueued collectives."
        ),
    ),
    "nccl_error": (
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, "
            "unhandled cuda error"
        ),
        (
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely."
        ),
    ),
    "host_out_of_memory": (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        (
            "(raylet) 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
            "crashed due to other reasons at node"
        ),
        "Out of memory: Killed process 4711 (python3) total-vm:123kB, anon-rss:456kB",
        "OSError: [Errno 12] Cannot allocate memory",
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ),
    "connection_refused": (
        "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")",
        "httpx.ConnectError: All connection attempts failed",
        (
            "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host localhost:8000 "
            "ssl:default [Connect call failed ('127.0.0.1', 8000)]"
        ),
        (
            "requests.exceptions.ConnectionError: HTTPConnectionPool(host='0.0.0.0', port=8000): "
            "Max retries exceeded with url: /health (Caused by NewConnectionError('<x>: Failed to "
            "establish a new connection: [Errno 111] Connection refused'))"
        ),
    ),
    "connection_lost": (
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "httpx.RemoteProtocolError: Server disconnected without sending a response.",
        "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ),
    "disk_full": (
        "OSError: [Errno 28] No space left on device: '/outputs/checkpoints'",
        (
            "(raylet) file_system_monitor.cc:111: /tmp/ray/session is over 95% full, available "
            "space: 21 GB; capacity: 500 GB. Object creation will fail if spilling is required."
        ),
        "OSError: [Errno 122] Disk quota exceeded",
    ),
    "not_writable": (
        "PermissionError: [Errno 13] Permission denied: '/outputs/wordle/rollouts/step_1'",
        "OSError: [Errno 30] Read-only file system: '/outputs'",
    ),
    "disk_error": (
        "OSError: [Errno 5] Input/output error: '/mnt/data/shard-3'",
        "OSError: [Errno 116] Stale file handle: '/mnt/nfs/x'",
        "blk_update_request: I/O error, dev nvme0n1, sector 123456 op 0x0:(READ) flags 0x80700",
        "Buffer I/O error on dev sda1, logical block 0, async page read",
        "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm python: reading",
    ),
    "weight_update_failed": ("ERROR: Weight update failed: HTTPConnectionPool(host='10.0.0.1')",),
    "environment_missing": (
        "ModuleNotFoundError: No module named 'verifiers'",
        "/usr/bin/python3: No module named areal.launcher",
        "ValueError: environment not found",
        "train.sh: line 3: uv: command not found",
        "python3: can't open file '/run/nofile.py': [Errno 2] No such file or directory",
    ),
    "weight_update_timeout": (
        (
            "TimeoutError: Timeout waiting for key 'root/exp/trial/update_weights_from_disk/57' "
            "(NfsNameRecordRepository)"
        ),
        "httpx.ReadTimeout: POST http://127.0.0.1:8000/update_weights",
        "ERROR Updating weights timed out after 720 s",
    ),
    "ray_death": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        (
            "ray.exceptions.RayActorError: The actor died because of an error raised in its "
            "creation task"
        ),
        "A worker died or was killed while executing a task by an unexpected system error.",
    ),
    "engine_died": (
        (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack "
            "trace (above) for the root cause."
        ),
        "ERROR 08-21 05:09:12 [core.py:710] EngineCore encountered a fatal error.",
        "[2026-08-21 05:09:12] Scheduler hit an exception: x",
        (
            "[2026-08-21 05:09:12] Received sigquit from a child process. It usually means the "
            "child failed."
        ),
    ),
    "process_killed": (
        "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed. ",
        (
            "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) "
            "local_rank: 0 (pid: 4711) of binary: /usr/bin/python3"
        ),
        "  traceback : Signal 9 (SIGKILL) received by PID 4711",
        "Fatal Python error: Segmentation fault",
    ),
    "child_ended": (
        "sandbox: solution 17 exited with code -11, reward 0",
        "Segmentation fault",
        "train.sh: line 3: 4711 Aborted (core dumped) python train.py",
        "concurrent.futures.process.BrokenProcessPool: A process in the pool was terminated",
        "ERROR: orchestrator exited with code 1",
        "Killed",
        "./run.sh: line 12: 4711 Killed                  python train.py",
    ),
    "exception": ("Traceback (most recent call last):",),
}
"""Lines from public bug reports and from the sources."""

ORDINARY = (
    "",
    "INFO 08-21 05:04:31 [gpu_worker.py:298] Available KV cache memory: 9.21 GiB",
    "INFO 08-21 05:04:31 [api_server.py:1090] Starting vLLM server on http://0.0.0.0:8000",
    'INFO:     127.0.0.1:45188 - "POST /v1/completions HTTP/1.1" 200 OK',
    'INFO:     127.0.0.1:45188 - "POST /update_weights HTTP/1.1" 200 OK',
    "[2026-08-21 05:04:31] Decode batch. #running-req: 3, #token: 812, token usage: 0.05",
    "[2026-08-21 05:04:31] max_total_num_tokens=123456, available_gpu_mem=1.21 GB",
    "NCCL version 2.27.3+cuda12.9",
    "NCCL WARN NET/OFI Failed to initialize sendrecv protocol",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids out of memory errors",
    "(raylet) Using memory threshold 0.95 for the memory monitor",
    "2026-08-21 05:04:31,218 INFO worker.py:1951 -- Started a local Ray instance.",
    "setting the timeout of weight updates to 720 s",
    "weight update took 3.1s, timeout=120",
    "Loading weights took 12.1 s (timeout of 600 s)",
    "request_timeout: 3600, setup_timeout: 120",
    "Retrying request to /completions in 0.49 seconds",
    "epoch 3: error rate 0.13, accuracy 0.87",
    "reading shard 28 of 111",
    "Connection pool size 64; connections refused by policy: 0",
    "the memory of the node is at 41%",
    "worker died out of the pool? no: 0 restarts",
    "killed=0 timed_out=0 errors=0",
    "Loading checkpoint shards: 100%|##########| 4/4 [00:03<00:00,  1.21it/s]",
    "  Signal handlers installed for SIGTERM and SIGINT",
    "Trial 13 finished with value: 0.5 and parameters: {'errno': 28}.",
)
"""Similar lines of a healthy run."""


def names_of(text: str) -> set[str]:
    return {pattern.name for pattern in COMMON_ERROR_PATTERNS if re2.search(pattern.regex, text)}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in QUOTED.items() for text in texts]
)
def test_an_error_is_recognised_by_a_line_quoted_from_a_real_run(name: str, text: str) -> None:
    found = names_of(text)
    assert name in found
    also = {"gpu_fault", "gpu_out_of_memory"} if name == "gpu_busy" else set()
    assert not found & also


@pytest.mark.parametrize(
    "dressed",
    [
        "\x1b[36m(WorkerDict pid=4711, ip=10.0.0.2)\x1b[0m \x1b[31m{}\x1b[0m",
        "(RolloutManager pid=12) {} [repeated 3x across cluster]",
        "[rank3]: {}",
        "2026-08-21 05:09:12,001 ERROR client.py:88 -- {}",
    ],
)
@pytest.mark.parametrize("name", QUOTED)
def test_an_error_is_recognised_behind_prefixes_and_colours(name: str, dressed: str) -> None:
    for text in QUOTED[name]:
        if text not in {"MemoryError", "Killed"}:  # match only if they are the whole line
            assert name in names_of(ANSI.sub("", dressed.format(text)))


@pytest.mark.parametrize("name", ["gpu_out_of_memory", "oom_thrown"])
def test_an_exception_of_gpu_memory_is_distinguished_from_a_message(name: str) -> None:
    for text in QUOTED[name]:
        assert names_of(text) == {name}, text


@pytest.mark.parametrize("text", QUOTED["child_ended"])
def test_the_end_of_a_child_shows_no_end_of_the_run(text: str) -> None:
    assert names_of(text) == {"child_ended"}
    (pattern,) = (one for one in COMMON_ERROR_PATTERNS if one.name == "child_ended")
    assert not is_fatal(pattern, TRAINER)


def test_every_error_pattern_has_quoted_lines() -> None:
    assert {pattern.name for pattern in COMMON_ERROR_PATTERNS} == set(QUOTED)


def test_error_patterns_have_no_phase_and_no_groups() -> None:
    for pattern in COMMON_ERROR_PATTERNS:
        assert pattern.error
        assert pattern.phase is pattern.ends is None
        assert not re2.compile(pattern.regex).groupindex


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_line_matches_no_error_pattern(text: str) -> None:
    assert names_of(text) == set()


@pytest.mark.parametrize("framework", LINES)
def test_framework_lines_match_only_the_expected_error_patterns(framework: str) -> None:
    for line in LINES[framework]:
        assert names_of(line.plain) == line.shared


@pytest.mark.parametrize(
    "text",
    [
        "trainer exited with code 0",
        "Killed 951 trials before they could start",
        "UserWarning: flash attention is off: No module named 'flash_attn'",
    ],
)
def test_lines_that_are_in_order_are_no_errors(text: str) -> None:
    assert [one.name for one in COMMON_ERROR_PATTERNS if re2.search(one.regex, text)] == []


CHILD = ("Traceback (most recent call last):", '  File "train.py", line 1', "ValueError: no data")
LAUNCHER = ("Traceback (most recent call last):", '  File "launch.py", line 7')
FAILED = (
    "subprocess.CalledProcessError: Command 'train.py' returned non-zero exit status 1.",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1",
)
KILLED = (
    "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
    "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
)
RESTART = "trainwarden: 2026-11-29T10:00:00.000Z process 12 ended with exit status 1"


@pytest.mark.parametrize("failed", FAILED)
def test_the_error_of_a_child_is_preferred_to_that_of_its_launcher(failed: str) -> None:
    assert last_error([*CHILD, "wandb: done", *LAUNCHER, failed]) == "ValueError: no data"
    assert last_error([*LAUNCHER, failed, "train.py FAILED"]) == failed.strip()
    assert last_error([*CHILD, RESTART, "step 1", *LAUNCHER, failed]) == failed.strip()


@pytest.mark.parametrize("killed", KILLED)
def test_the_signal_that_ended_a_child_is_its_error(killed: str) -> None:
    assert last_error([*CHILD, *LAUNCHER, killed]) == killed


def test_a_long_error_is_cut_at_a_word_and_marked() -> None:
    error = f"ValueError: {'Of the allocated memory. ' * 20}"
    shown = shown_error((CHILD[0], error))
    assert len(shown) <= MAX_SHOWN
    assert shown.endswith("…")
    assert error.startswith(shown[:-1])
    assert error[len(shown) - 1] in " ."
    assert shown_error((CHILD[0], "ValueError: no data")) == "ValueError: no data"
    word = f"ValueError:{'x' * 300}"
    assert shown_error((CHILD[0], word)) == f"{word[: MAX_SHOWN - 1]}…"


@pytest.mark.parametrize(
    "line",
    [
        "badarg.py: error: unrecognized arguments: --lr x",
        "torchrun: error: the following arguments are required: training_script",
        "Error: No such option: --lr",
    ],
)
def test_wrong_arguments_are_the_error_and_no_value_of_that_name(line: str) -> None:
    assert shown_error(("usage: badarg.py [-h]", line, "")) == line
    assert shown_error(("step 3: error: 0.125", "eval error: 0.3")) == ""


def test_without_an_error_the_end_of_a_log_is_its_last_line() -> None:
    bars = ("\x1b[A 35%|███▌      | 35/100 [00:10<00:19]", "Epoch 2 ━━━━━━━━ 3/4", "[====>....]")
    own = "trainwarden: the command ended with exit status 3"
    lines = ("one", "two", "nothing named lr", "token=abc\x07", "", *bars, own)
    assert last_lines(lines) == "two | nothing named lr | token=[redacted]"
    assert shown_end(lines[:3]) == "last line: nothing named lr"
    assert shown_end(("ValueError: no", "bye")) == "ValueError: no"
    assert last_lines(("x" * 300,)) == f"{'x' * (MAX_SHOWN - 1)}…"
    assert (shown_end(bars), shown_end(())) == ("", "")
