"""Folder trees of training frameworks, with real names, for tests of their readers.

`write(tmp_path, "areal", State.HALF_WRITTEN)` builds a tree and returns the facts about it. Its
newest change is a few seconds before `now`, which distinguishes `SettledRule` from other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from night_trees import areal, prime_rl, prime_rl_0_2, prime_rl_0_8
from rl_trees import nemo_rl, openrlhf, skyrl, slime, verl
from training_trees import deepspeed, lightning, megatron, optuna, ray_train, torchtitan, trl
from tree_writing import FRESH, NOW, State, Tree, Written

__all__ = ["BUILDERS", "FRESH", "NOW", "State", "Tree", "Written", "framework", "write"]

BUILDERS: Mapping[str, Callable[[Path, State], Written]] = {
    "areal": areal,
    "prime_rl": prime_rl,
    "prime_rl_0_8": prime_rl_0_8,
    "prime_rl_0_2": prime_rl_0_2,
    "verl": verl,
    "openrlhf": openrlhf,
    "trl": trl,
    "slime": slime,
    "nemo_rl": nemo_rl,
    "torchtitan": torchtitan,
    "lightning": lightning,
    "optuna": optuna,
    "skyrl": skyrl,
    "ray_train": ray_train,
    "megatron": megatron,
    "deepspeed": deepspeed,
}
"""By framework, and by version where the layout differs."""


def framework(name: str) -> str:
    """Returns the value of `framework:` for a key of `BUILDERS`."""
    return "prime_rl" if name.startswith("prime_rl") else name


def write(path: Path, name: str, state: State) -> Written:
    """Creates `path` and writes the tree of one of `BUILDERS` into it."""
    path.mkdir(parents=True, exist_ok=True)
    return BUILDERS[name](path, state)
