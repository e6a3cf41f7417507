"""Example log lines of training frameworks, with the patterns that each must match.

They are built from the format strings of the frameworks, with the colours and prefixes of real
files.
"""

from __future__ import annotations

from collections.abc import Mapping

from line_writing import ANSI, Line
from night_lines import AREAL, PRIME_RL
from rl_lines import NEMO_RL, OPENRLHF, SKYRL, SLIME, VERL
from training_lines import DEEPSPEED, LIGHTNING, MEGATRON, OPTUNA, RAY_TRAIN, TORCHTITAN, TRL

__all__ = ["ANSI", "LINES", "Line"]

LINES: Mapping[str, tuple[Line, ...]] = {
    "areal": AREAL,
    "prime_rl": PRIME_RL,
    "verl": VERL,
    "openrlhf": OPENRLHF,
    "trl": TRL,
    "slime": SLIME,
    "nemo_rl": NEMO_RL,
    "torchtitan": TORCHTITAN,
    "lightning": LIGHTNING,
    "optuna": OPTUNA,
    "skyrl": SKYRL,
    "ray_train": RAY_TRAIN,
    "megatron": MEGATRON,
    "deepspeed": DEEPSPEED,
}
"""By framework."""
