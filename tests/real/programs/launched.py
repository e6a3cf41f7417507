"""Runs another of these programs, for faults that end it. Arguments: program, steps, seconds.

It records when its process began, so that the time to load is known, and gives the program what
users give theirs and the tests do without: it resumes from the newest checkpoint, complete or not,
unless TRAINWARDEN_CHECKPOINT names another; it keeps eight checkpoints; and with LAUNCHED_PORT it
listens there, as the rank 0 of torch.distributed.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

from truth import ordered, record

CHECKPOINTS = 8
HERE = Path(__file__).parent


def began() -> float:
    """When this process was started, in unix seconds."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def as_users_do_with_transformers() -> None:
    import tiny  # noqa: PLC0415 - it needs the arguments
    from transformers.trainer_utils import get_last_checkpoint  # noqa: PLC0415

    class Truth(tiny.Truth):
        def on_log(self, args, state, control, logs=None, **kwargs):
            super().on_log(args, state, control, logs, **kwargs)
            if ordered("nan_log") and "loss" in (logs or {}):  # what is printed next
                logs["loss"] = float("nan")

    def newest_checkpoint():
        folder = Path(tiny.ARGUMENTS["output_dir"])
        named = os.environ.get("TRAINWARDEN_CHECKPOINT")
        return named or (get_last_checkpoint(folder) if folder.exists() else None)

    tiny.Truth, tiny.newest_checkpoint = Truth, newest_checkpoint
    tiny.ARGUMENTS |= {"save_steps": 20, "save_total_limit": CHECKPOINTS}


def as_users_do_with_loops() -> None:
    import torch  # noqa: PLC0415 - the others do without

    save = torch.save

    def save_and_delete_old(*args, **kwargs):
        save(*args, **kwargs)
        found = [(int(one.stem.rpartition("_")[2]), one) for one in Path("out").glob("step_*.pt")]
        for _, path in sorted(found)[:-CHECKPOINTS]:
            path.unlink(missing_ok=True)

    torch.save = save_and_delete_old


program, *arguments = sys.argv[1:]
record("start", began=began())
sys.argv = [str(HERE / f"{program}.py"), *arguments]
if port := os.environ.get("LAUNCHED_PORT"):
    import torch

    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
if program in ("transformers_trainer", "trl_sft"):
    as_users_do_with_transformers()
elif program in ("plain", "served"):
    as_users_do_with_loops()
runpy.run_path(sys.argv[0], run_name="__main__")
record("finished")
