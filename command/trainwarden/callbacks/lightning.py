"""A callback for the Trainer of Lightning.

Trainer(..., callbacks=[BeatCallback()])
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the same library under its older name
    from pytorch_lightning.callbacks import Callback

from trainwarden.heartbeat import beat


class BeatCallback(Callback):
    """Reports optimizer steps, `max_steps` as their total, and phases.

    Metrics of Lightning are tensors, perhaps on a GPU: report a number with
    `trainwarden.beat(loss=loss.item())` where the program reads it anyway.
    """

    def on_train_start(self, trainer: Any, *args: Any) -> None:
        if trainer.is_global_zero:
            total = trainer.max_steps if trainer.max_steps > 0 else None  # -1: no limit
            beat(step=trainer.global_step, total=total, phase="training")

    def on_train_batch_start(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.is_global_zero:
            beat(phase="training")

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.is_global_zero:
            beat(step=trainer.global_step)

    def on_validation_start(self, trainer: Any, *args: Any) -> None:
        if trainer.is_global_zero and not trainer.sanity_checking:
            beat(phase="evaluating")

    def on_validation_end(self, trainer: Any, *args: Any) -> None:
        if trainer.is_global_zero and not trainer.sanity_checking:
            beat(phase="training")

    def on_save_checkpoint(self, trainer: Any, *args: Any) -> None:
        # The file is written next, and no event follows it but the next batch.
        if trainer.is_global_zero:
            beat(phase="saving")

    def on_fit_end(self, trainer: Any, *args: Any) -> None:
        if trainer.is_global_zero:
            beat(phase="finished")
