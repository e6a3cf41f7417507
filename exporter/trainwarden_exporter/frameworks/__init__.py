"""One file per training framework: where it writes its output, and how it names steps."""

from __future__ import annotations

from trainwarden_exporter.frameworks import (
    areal,
    deepspeed,
    generic,
    lightning,
    megatron,
    nemo_rl,
    openrlhf,
    optuna,
    prime_rl,
    ray_train,
    skyrl,
    slime,
    torchtitan,
    trl,
    verl,
)
from trainwarden_exporter.frameworks.base import Framework

FRAMEWORKS: tuple[Framework, ...] = (
    areal.FRAMEWORK,
    prime_rl.FRAMEWORK,
    verl.FRAMEWORK,
    openrlhf.FRAMEWORK,
    trl.FRAMEWORK,
    slime.FRAMEWORK,
    nemo_rl.FRAMEWORK,
    torchtitan.FRAMEWORK,
    lightning.FRAMEWORK,
    optuna.FRAMEWORK,
    skyrl.FRAMEWORK,
    ray_train.FRAMEWORK,
    megatron.FRAMEWORK,
    deepspeed.FRAMEWORK,
    generic.FRAMEWORK,
)

_BY_NAME = {one.name: one for one in FRAMEWORKS}


def get_framework(name: str) -> Framework:
    """Returns the framework that `framework: NAME` selects. Raises ValueError with all names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(_BY_NAME)
        raise ValueError(f"unknown framework {name}; known frameworks: {known}") from None
