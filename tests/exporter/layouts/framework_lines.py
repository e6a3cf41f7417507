"""Lines as training frameworks write them, and what each of them should be read as, for tests.

They are built from the format strings of the frameworks, with the colours and the prefixes that
stand in their files. `log_text("verl")` is the log of a run that resumes, trains and ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from line_writing import ANSI, Line
from night_lines import AREAL, PRIME_RL
from rl_lines import NEMO_RL, OPENRLHF, SKYRL, SLIME, VERL
from training_lines import LIGHTNING, OPTUNA, RAY_TRAIN, TORCHTITAN, TRL

__all__ = ["ANSI", "LINES", "Line", "log_text"]

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
}
"""By framework."""


def log_text(name: str) -> str:
    """All lines of a framework as a log file holds them, colours and all."""
    return "".join(f"{line.text}\n" for line in LINES[name])
