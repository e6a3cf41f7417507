"""One file per training framework: where it keeps its work, and how it names steps."""

from __future__ import annotations

from trainwarden_exporter.layouts import (
    areal,
    generic,
    lightning,
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
from trainwarden_exporter.layouts.base import Layout

LAYOUTS: tuple[Layout, ...] = (
    areal.LAYOUT,
    prime_rl.LAYOUT,
    verl.LAYOUT,
    openrlhf.LAYOUT,
    trl.LAYOUT,
    slime.LAYOUT,
    nemo_rl.LAYOUT,
    torchtitan.LAYOUT,
    lightning.LAYOUT,
    optuna.LAYOUT,
    skyrl.LAYOUT,
    ray_train.LAYOUT,
    generic.LAYOUT,
)

_BY_NAME = {one.name: one for one in LAYOUTS}


def layout(name: str) -> Layout:
    """The layout that `framework: NAME` means. Raises ValueError, with all names, for none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(_BY_NAME)
        raise ValueError(f"no framework {name} is known; those known are {known}") from None
