"""For the training function of Ray Train: `report` instead of `ray.train.report`.

report({"loss": loss}, step=step, total=total, checkpoint=checkpoint)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import ray.train

from trainwarden.callbacks.plain_numbers import plain_numbers
from trainwarden.heartbeat import beat, phase


def report(
    metrics: Mapping[str, Any], *, step: int, total: int | None = None, **options: Any
) -> None:
    """Reports to Ray and, from the worker of rank 0, a beat with the numbers in `metrics`.

    `options` are those of `ray.train.report`. A report with a checkpoint is a save, as Ray uploads
    the checkpoint before it returns.
    """
    first = ray.train.get_context().get_world_rank() == 0
    if first:
        beat(step, total, None, **plain_numbers(metrics))
    saves = first and options.get("checkpoint") is not None
    with phase("saving") if saves else nullcontext():
        ray.train.report(dict(metrics), **options)
