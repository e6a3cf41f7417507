"""A plain training loop, as people write it: steps, checkpoints, and a resume from the newest.

    trainwarden run -- python train.py
    trainwarden run --memory-limit 500MiB -- python train.py --leak --step-seconds 2

With PyTorch it trains a small network; without, a straight line, so that it runs on any host. It
knows nothing of Trainwarden: what it prints is enough.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Protocol

LEAK_BYTES_PER_STEP = 8 << 20
LEAK_CEILING = 600 << 20
"""Bytes at which the leak ends, so that it never takes the host down."""


class Model(Protocol):
    """What the loop needs of a model."""

    def step(self) -> float: ...
    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...


class Line:
    """Fits y = 3x + 1 by gradient descent, in Python alone."""

    def __init__(self) -> None:
        self.weight, self.bias = 0.0, 0.0

    def step(self) -> float:
        """Makes one step and returns the loss."""
        x = random.uniform(-1, 1)  # noqa: S311 - data, not a secret
        error = self.weight * x + self.bias - (3 * x + 1)
        self.weight -= 0.1 * error * x
        self.bias -= 0.1 * error
        return error * error

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([self.weight, self.bias]), encoding="utf-8")

    def load(self, path: Path) -> None:
        self.weight, self.bias = json.loads(path.read_text(encoding="utf-8"))


def build_model() -> Model:
    """Returns a network of PyTorch, or a `Line` where PyTorch is not installed."""
    try:
        import torch  # noqa: PLC0415 - it may be missing
    except ImportError:
        return Line()

    class Network:
        def __init__(self) -> None:
            self.net = torch.nn.Sequential(
                torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
            )
            self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

        def step(self) -> float:
            x = torch.randn(32, 16)
            loss = (self.net(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return float(loss.item())

        def save(self, path: Path) -> None:
            torch.save(self.net.state_dict(), path)

        def load(self, path: Path) -> None:
            self.net.load_state_dict(torch.load(path, weights_only=True))

    return Network()


def newest_checkpoint(folder: Path) -> tuple[int, Path] | None:
    """Returns the step and the file of the newest checkpoint."""
    found = [(int(path.stem.removeprefix("step_")), path) for path in folder.glob("step_*.pt")]
    return max(found, default=None)


def main() -> None:
    """Trains until the last step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.5, help="length of a step")
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"))
    parser.add_argument("--leak", action="store_true", help="hold 8 MiB more after each step")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    model, first = build_model(), 0
    if (saved := newest_checkpoint(options.out)) is not None:
        first, path = saved
        model.load(path)
        print(f"resumed from step {first}", flush=True)
    held: list[bytes] = []
    for step in range(first + 1, options.steps + 1):
        loss = model.step()
        time.sleep(options.step_seconds)
        print(f"step {step}/{options.steps} loss {loss:.4f}", flush=True)
        if step % options.save_every == 0:
            # Under another name first: a kill never leaves half a checkpoint behind.
            path = options.out / f"step_{step}.pt"
            model.save(path.with_suffix(".tmp"))
            path.with_suffix(".tmp").replace(path)
        if options.leak and len(held) * LEAK_BYTES_PER_STEP < LEAK_CEILING:
            held.append(b"\x5a" * LEAK_BYTES_PER_STEP)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
