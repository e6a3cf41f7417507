"""Folders as training frameworks leave them, with real names, for tests of whatever reads them.

`write(tmp_path, "areal", State.HALF_WRITTEN)` builds one and says what is true of it. The newest
change in it lies a few seconds before `now`, so that a proof by silence can be told from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from night_trees import areal, prime_rl, prime_rl_0_2, prime_rl_0_8
from rl_trees import nemo_rl, openrlhf, skyrl, slime, verl
from training_trees import lightning, optuna, ray_train, torchtitan, trl
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
}
"""By the framework, and its version where that lays things out otherwise."""


def framework(name: str) -> str:
    """What `framework:` says for a key of `BUILDERS`."""
    return "prime_rl" if name.startswith("prime_rl") else name


def write(path: Path, name: str, state: State) -> Written:
    """Write the tree of one of `BUILDERS` into `path`, which is made."""
    path.mkdir(parents=True, exist_ok=True)
    return BUILDERS[name](path, state)
