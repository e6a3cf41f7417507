"""A training function of Ray Train with one worker. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import ray.train
from ray.train.torch import TorchTrainer

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
folder = Path.cwd()


def train(config):
    from truth import record  # noqa: PLC0415 - in the worker

    from trainwarden.callbacks.ray_train import report  # noqa: PLC0415

    for step in range(1, steps + 1):
        time.sleep(seconds)
        record("step", step=step)
        checkpoint = None
        with tempfile.TemporaryDirectory() as name:
            if step % 10 == 0:
                Path(name, "state").write_text(str(step))
                checkpoint = ray.train.Checkpoint.from_directory(name)
            report({"loss": 1 / step}, step=step, total=steps, checkpoint=checkpoint)


ray.init(num_cpus=1, include_dashboard=False)
TorchTrainer(
    train,
    scaling_config=ray.train.ScalingConfig(num_workers=1),
    run_config=ray.train.RunConfig(storage_path=str(folder / "out"), name="ray"),
).fit()
