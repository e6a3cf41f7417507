"""A trainer and an orchestrator that pass batches by files as PRIME-RL's do, for tests.

    prime_program.py orchestrator --outputs outputs/wordle --server http://127.0.0.1:8000
    prime_program.py trainer --outputs outputs/wordle

The orchestrator writes `rollouts/step_N/rank_R.pt` once the server has completed a prompt for each
rank, and keeps one step ahead of the trainer at most; the trainer waits for all ranks, for ever.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from threading import Event

RANKS = 2
POLL_SECONDS = 0.1
AHEAD = 1


class Part:
    """What both have: a log, an end, and the folder between them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._log = options.outputs / "logs" / f"{options.part}.stdout"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._done = options.outputs / "trained"
        self._rollouts = options.outputs / "rollouts"
        self._end = Event()
        self._last = time.monotonic() + options.longest_seconds
        self.pace: float = options.step_seconds
        signal.signal(signal.SIGTERM, lambda *_: self._end.set())

    @property
    def over(self) -> bool:
        return self._end.is_set() or time.monotonic() > self._last

    @property
    def trained(self) -> int:
        """The steps that the trainer has made."""
        try:
            return int(self._done.read_text())
        except FileNotFoundError:
            return 0

    def has_trained(self, step: int) -> None:
        temporary = self._done.with_suffix(".tmp")
        temporary.write_text(str(step))
        temporary.replace(self._done)

    def batch(self, step: int) -> list[Path]:
        """The shares of all ranks."""
        return [self._rollouts / f"step_{step}" / f"rank_{rank}.pt" for rank in range(RANKS)]

    def pause(self, seconds: float) -> None:
        self._end.wait(seconds)

    def say(self, level: str, message: str) -> None:
        """As loguru writes it, with colours."""
        moment = datetime.now().astimezone().strftime("%H:%M:%S")
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"\x1b[32m{moment}\x1b[0m \x1b[1m{level:>7}\x1b[0m {message}\n")


def train(part: Part, steps: int) -> None:
    """Make a step of each batch, so many in all."""
    while not part.over and part.trained < steps:
        step, began = part.trained + 1, time.monotonic()
        part.say("INFO", "Waiting for training batch to arrive")
        while not all(path.exists() for path in part.batch(step)):
            if part.over:
                return
            part.pause(POLL_SECONDS)
        part.pause(part.pace)
        part.has_trained(step)
        took = time.monotonic() - began
        part.say("SUCCESS", f"Step {step} | Time: {took:.2f}s | Loss: 0.0123 | Entropy: 0.5432")
    if part.trained >= steps:
        part.say("SUCCESS", "RL trainer finished!")


def orchestrate(part: Part, server: str) -> None:
    """Write a batch for each step that the trainer is about to need."""
    step = part.trained + 1
    while not part.over:
        if step > part.trained + 1 + AHEAD:
            part.pause(POLL_SECONDS)
            continue
        began, rewards = time.monotonic(), []
        try:
            for path in part.batch(step):
                rewards.append(completed(server))
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_suffix(".pt.tmp")
                temporary.write_bytes(b"batch")
                temporary.replace(path)
        except OSError as error:
            part.say("WARNING", f"Step {step} cannot be written, trying again: {error}")
            part.pause(1)
            continue
        took = time.monotonic() - began
        part.say("SUCCESS", f"Step {step} | Time: {took:.2f}s | Reward: {sum(rewards):.4f}")
        step += 1


def completed(server: str) -> float:
    """Have one completion, and its reward. Raises OSError."""
    body = {"model": "tiny", "prompt": "1 + 1 =", "max_tokens": 4}
    request = urllib.request.Request(  # noqa: S310 - on loopback
        f"{server}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
        return float("1" in str(json.loads(answer.read())))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("trainer", "orchestrator"))
    parser.add_argument("--outputs", type=Path, required=True)
    parser.add_argument("--server", default="")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-seconds", type=float, default=1.0)
    parser.add_argument("--longest-seconds", type=float, default=900, help="then it ends")
    options = parser.parse_args()
    part = Part(options)
    if options.part == "trainer":
        train(part, options.steps)
    else:
        orchestrate(part, options.server)
    sys.exit(0)


if __name__ == "__main__":
    main()
