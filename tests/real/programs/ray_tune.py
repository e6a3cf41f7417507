"""Ray Tune with one trial. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys

import ray
from ray import tune
from truth import FOLDER, evaluation_batch, ordered, record, step_done

steps, seconds = int(sys.argv[1]), float(sys.argv[2])


def trial(config):
    for step in range(1, steps + 1):
        evaluation_batch()
        loss = float("nan") if ordered("nan") else config["x"] ** 2 / step
        step_done(step, seconds)
        record("loss", loss=loss)
        tune.report({"loss": loss})


ray.init(num_cpus=2, include_dashboard=False)
tune.Tuner(
    trial,
    param_space={"x": tune.uniform(-1, 1)},
    run_config=tune.RunConfig(name="tiny", storage_path=str(FOLDER / "out")),
).fit()
