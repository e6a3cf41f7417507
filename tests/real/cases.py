"""One definition of each framework: its program, and what can be known of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

EVALUATION_SECONDS = float(os.environ.get("TRAINWARDEN_REAL_EVALUATION_SECONDS", "75"))
HEALTHY_SECONDS = float(os.environ.get("TRAINWARDEN_REAL_HEALTHY_SECONDS", "180"))


@dataclass(frozen=True)
class Case:
    """A program in programs/, its package, and the framework that `discover` should recognise."""

    program: str
    package: str
    framework: str
    steps: int = 1200
    """More than are made until the last fault."""

    seconds: float = 0.5
    """Duration of a step, beside what the framework needs for it."""

    counts: Literal["step", "trial"] = "step"
    lag: int = 2
    """Steps that its log or its files are behind."""

    reports: str = ""
    """Its lines of JSON, where they lie in its folder, if it copies them there only at times."""

    shows_total: bool = False
    shows_evaluations: bool = False
    """Whether it logs an evaluation, so that the phase can be known."""

    loss: Literal["log_value", "training_value", ""] = ""
    """The metric that has its loss; empty if it writes none."""

    survives_nan: bool = True
    saves: Literal["step", "time", ""] = ""
    """What is known of its checkpoints: the step, or the time only; empty if it makes none."""

    tells_end: bool = True
    """Whether its files show that it has finished, where the kernel has no exit status."""


CASES = (
    Case("plain", "torch", "generic", shows_total=True, loss="log_value", saves="step"),
    Case(
        "transformers_trainer",
        "transformers",
        "trl",
        shows_total=True,
        shows_evaluations=True,
        loss="log_value",
        saves="step",
    ),
    Case(
        "trl_sft",
        "trl",
        "trl",
        shows_total=True,
        shows_evaluations=True,
        loss="log_value",
        saves="step",
    ),
    Case(
        "trl_grpo",
        "trl",
        "trl",
        shows_total=True,
        shows_evaluations=True,
        loss="log_value",
        survives_nan=False,  # generation refuses probabilities that are not finite
        saves="step",
    ),
    # The bar of Rich writes nothing into a file: its metrics.csv has the step, flushed every 10.
    Case(
        "lightning_trainer", "lightning", "lightning", lag=15, loss="training_value", saves="step"
    ),
    Case("optuna_search", "optuna", "optuna", counts="trial", tells_end=False),
    # A report takes two seconds.
    Case(
        "ray_train",
        "ray",
        "ray_train",
        seconds=0.1,
        loss="log_value",
        saves="time",
        tells_end=False,
    ),
    # Tune writes below /tmp/ray, and copies to storage_path every 10 s, or 19 times as long as a
    # copy takes (TUNE_GLOBAL_CHECKPOINT_S).
    Case(
        "ray_tune",
        "ray",
        "ray_train",
        tells_end=False,
        loss="training_value",
        reports="out/tiny/*/result.json",
    ),
)
