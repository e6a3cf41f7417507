"""Ray Train with one worker. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import ray
import torch
from ray import train
from ray.train.torch import TorchTrainer
from truth import FOLDER, evaluation_batch, poison, record, step_done

steps, seconds = int(sys.argv[1]), float(sys.argv[2])


def loop(config):
    model = torch.nn.Linear(8, 1)
    first = 0
    if saved := train.get_checkpoint():
        with saved.as_directory() as folder:
            content = torch.load(Path(folder) / "model.pt", weights_only=True)
        first = content["step"]
        model.load_state_dict(content["model"])
    for step in range(first + 1, steps + 1):
        poison(model)
        evaluation_batch()
        loss = model(torch.randn(2, 8)).pow(2).mean().item()
        step_done(step, seconds)
        record("loss", loss=loss)
        if step % 10:
            train.report({"loss": loss})
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"step": step, "model": model.state_dict()}, Path(folder) / "model.pt")
            checkpoint = train.Checkpoint.from_directory(folder)
            train.report({"loss": loss}, checkpoint=checkpoint)
        record("saved", step=step)


ray.init(num_cpus=2, include_dashboard=False)
TorchTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(name="tiny", storage_path=str(FOLDER / "out")),
).fit()
