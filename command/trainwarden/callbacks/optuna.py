"""A callback for a study of Optuna.

study.optimize(objective, n_trials=100, callbacks=[BeatCallback(total=100)])
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trainwarden.heartbeat import beat


class BeatCallback:
    """Reports the ended trials of the study as steps, and the value of the last trial.

    Processes that share a study report the same count, so any of them speaks for the run.
    """

    def __init__(self, total: int | None = None) -> None:
        self._total = total

    def __call__(self, study: Any, trial: Any) -> None:
        with suppress(Exception):  # an exception of a callback ends the study
            ended = sum(one.state.is_finished() for one in study.get_trials(deepcopy=False))
            beat(step=ended, total=self._total, phase="training")
            if trial.values and len(trial.values) == 1:
                beat(value=trial.values[0])
