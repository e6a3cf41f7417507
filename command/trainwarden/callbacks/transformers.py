"""A callback for the Trainer of Transformers, and for those of TRL, which derive from it.

Trainer(..., callbacks=[BeatCallback()])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from trainwarden.callbacks.plain_numbers import plain_numbers
from trainwarden.heartbeat import beat


class BeatCallback(TrainerCallback):
    """Reports optimizer steps, their total, phases, and the numbers that the Trainer logs."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            beat(step=state.global_step, total=state.max_steps, phase="starting")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            beat(phase="training")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Evaluation and save follow, and their events come at their end.
        if state.is_world_process_zero:
            phase = "saving" if control.should_save else None
            phase = "evaluating" if control.should_evaluate else phase
            beat(step=state.global_step, total=state.max_steps, phase=phase)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # With the strategy `epoch`, evaluation and save follow here.
        self.on_step_end(args, state, control, **kwargs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            beat(phase="saving" if control.should_save else "training")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            beat(phase="training")

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero:
            beat(None, None, None, **plain_numbers(logs))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            beat(phase="finished")
