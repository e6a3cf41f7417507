"""An autopsy of 200 MB: every error is counted, and memory stays bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SIZE = 200 << 20
MOST_MEMORY_KIB = 400 << 10

MEASURED = """
import resource, sys
from trainwarden.cli import main
status = main(["autopsy", "--json", sys.argv[1]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


def autopsy(log: Path) -> tuple[dict[str, object], int]:
    """Returns the JSON, and the peak memory in KiB."""
    command = [sys.executable, "-c", MEASURED, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout), int(done.stderr.split()[-1])


def test_a_large_log_is_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    refused = 0
    with log.open("w") as file:
        step = 0
        while file.tell() < SIZE:
            step += 1
            clock = f"2025-11-10 {step // 3600 % 24:02}:{step // 60 % 60:02}:{step % 60:02}Z"
            file.write(f"{clock} DEBUG fetched shard {step} of the data set from the cache\n" * 400)
            file.write(f"{clock} INFO step {step}/900000 loss: 0.5\n")
            if step % 1000 == 0:
                refused += 1
                file.write(f"{clock} ERROR Connection refused, retry\n")
        file.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    found, memory = autopsy(log)
    assert isinstance(found["causes"], list)
    assert found["causes"][0]["name"] == "gpu_out_of_memory"
    assert found["last_step"] == step
    assert isinstance(found["errors"], list)
    counts = {error["kind"]: error["count"] for error in found["errors"]}
    assert counts == {"connection_refused": refused, "gpu_out_of_memory": 1}
    assert found["unread"] == []
    assert memory < MOST_MEMORY_KIB


def test_of_a_large_log_in_which_every_line_matches_the_middle_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with log.open("w") as file:
        step = 0
        while file.tell() < SIZE:
            lines = (
                f"step {step + n}/9000000 loss: 0.5 grad_norm: 0.1\n" for n in range(1, 10_001)
            )
            file.writelines(lines)
            step += 10_000
        file.write("OSError: [Errno 28] No space left on device\n")
    found, memory = autopsy(log)
    assert isinstance(found["causes"], list)
    assert found["causes"][0]["name"] == "disk_full"
    assert found["last_step"] == step
    assert found["unread"] == ["the middle of train.log"]
    assert memory < MOST_MEMORY_KIB
