"""The demo's trainer: takes rollouts, makes steps, saves checkpoints, and goes on from the newest.

A checkpoint is written to `checkpoints/tmp_step_N`, renamed to `step_N`, and complete once it holds
the file `COMPLETE`; the run goes on from the newest complete one.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from program import Program, arguments, write_whole
from simulated import GIB, hold_gpu

STEP_SECONDS = 1.0
SAVE_EVERY = 10
KEEP = 3
WEIGHTS_BYTES = 256 << 10
MARKER = "COMPLETE"
DEVICE, DEVICE_MEMORY = 1, 14 * GIB


@dataclass(frozen=True, slots=True)
class State:
    """What a checkpoint holds beside the weights."""

    step: int
    loss: float
    reward: float


def main() -> None:
    """Train until the last step, or until stopped."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="length of the run")
    options = parser.parse_args()
    program = Program(options.name, options.folder)
    hold_gpu(options.folder, DEVICE, DEVICE_MEMORY)
    checkpoints = options.folder / "checkpoints"
    rollouts = options.folder / "rollouts"
    checkpoints.mkdir(parents=True, exist_ok=True)

    state = newest_complete(checkpoints)
    if state is None:
        state = State(step=0, loss=2.0, reward=0.0)
        program.log("start from step 0")
    else:
        program.log(f"resume from step {state.step}")

    used = time.time()
    while state.step < options.steps and not program.stopping:
        rewards = wait_for_rollouts(program, rollouts, used)
        used = time.time()
        program.pause(STEP_SECONDS)
        if program.stopping:
            break
        state = train_step(state, rewards)
        program.log(
            f"step {state.step}/{options.steps} loss {state.loss:.4f} reward {state.reward:.4f}"
        )
        if state.step % SAVE_EVERY == 0:
            save(checkpoints, state)
            program.log(f"saved checkpoint step_{state.step:06d}")


def wait_for_rollouts(program: Program, folder: Path, since: float) -> list[float]:
    """Rewards in the rollout files written after `since`; waits until there is one."""
    reported_at = 0.0
    while not program.stopping:
        files = () if program.stalled else folder.glob("*/step_*.json")
        if rewards := [reward for path in files for reward in read_rewards(path, since)]:
            return rewards
        if time.monotonic() - reported_at > 10 * STEP_SECONDS:
            reported_at = time.monotonic()
            program.log("waiting for rollouts")
        program.pause(STEP_SECONDS / 5)
    return []


def read_rewards(path: Path, since: float) -> list[float]:
    """The reward in one rollout file, if it was written after `since`."""
    try:
        if path.stat().st_mtime <= since:
            return []
        return [float(json.loads(path.read_bytes())["reward"])]
    except FileNotFoundError:  # its worker keeps only the newest few
        return []


def train_step(state: State, rewards: list[float]) -> State:
    """The state one step further."""
    step = state.step + 1
    noise = random.gauss(0, 0.02)
    return State(
        step=step,
        loss=0.2 + 1.8 * math.exp(-step / 500) + noise,
        reward=0.9 * state.reward + 0.1 * sum(rewards) / len(rewards),
    )


def save(folder: Path, state: State) -> None:
    """Write a checkpoint that is either complete or not there, and remove the oldest."""
    temporary = folder / f"tmp_step_{state.step:06d}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write_whole(temporary / "weights.bin", os.urandom(WEIGHTS_BYTES))
    fields = {"step": state.step, "loss": state.loss, "reward": state.reward}
    write_whole(temporary / "state.json", json.dumps(fields).encode())
    final = folder / f"step_{state.step:06d}"
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    write_whole(final / MARKER, b"")
    for old in sorted(folder.glob("step_*"))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def newest_complete(folder: Path) -> State | None:
    """The state in the newest complete checkpoint; None when there is none."""
    for path in sorted(folder.glob("step_*"), reverse=True):
        if (path / MARKER).exists():
            return State(**json.loads((path / "state.json").read_bytes()))
    return None


if __name__ == "__main__":
    main()
