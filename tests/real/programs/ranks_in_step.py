"""Ranks of gloo that exchange gradients in each step; one of them may be slow.

Arguments: who is slow (`nobody`, a rank, `random`), the number of steps, and a folder.
"""

from __future__ import annotations

import random
import sys
import time
from multiprocessing import get_context
from os import environ
from pathlib import Path

import torch
import torch.distributed as dist

import trainwarden

RANKS = 4
WORK_SECONDS = 0.35
SLOW_SECONDS = 0.15
"""30 % of the step."""


def train(rank: int, slow: str, steps: int, folder: str) -> None:
    """Waits for the other ranks in the exchange, as data parallel training does."""
    torch.set_num_threads(1)
    environ["RANK"] = str(rank)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    gradients = torch.ones(1000)
    dice = random.Random(1)  # noqa: S311 - the same in all ranks
    for step in range(1, steps + 1):
        odd = dice.randrange(RANKS) if slow == "random" else -1 if slow == "nobody" else int(slow)
        time.sleep(WORK_SECONDS + (SLOW_SECONDS if rank == odd else 0.0))
        trainwarden.beat(step=step)
        dist.all_reduce(gradients)


if __name__ == "__main__":
    _, who, count, where = sys.argv
    context = get_context("spawn")
    ranks = [
        context.Process(target=train, args=(rank, who, int(count), where)) for rank in range(RANKS)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    Path(where, "done").touch()
