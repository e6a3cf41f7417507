"""The command `trainwarden`, and what a training script imports.

    import trainwarden

    trainwarden.beat(step=step, total=1000, loss=loss.item())
    with trainwarden.phase("evaluating"): ...

This module imports nothing until then: a training script pays for it at its start.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.heartbeat import beat, phase

__all__ = ["beat", "phase"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainwarden import heartbeat  # noqa: PLC0415 - only who calls it pays for it

    for each in __all__:
        globals()[each] = getattr(heartbeat, each)
    return globals()[name]
