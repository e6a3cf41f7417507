"""Panels about containers that several boards have."""

from __future__ import annotations

from boards import style, why
from boards.panels import Timeline
from boards.queries import Query, coded
from boards.style import codes, words

STATE_WORDS = words(
    ("running", style.GOOD),
    ("created", "semi-dark-blue"),
    ("restarting", "orange"),
    ("paused", style.CALM),
    ("removing", "light-blue"),
    ("exited", style.CRITICAL),
    ("dead", "dark-red"),
    ("absent", "dark-red"),
)

HEALTH_WORDS = words(
    ("starting", "light-blue"), ("healthy", style.GOOD), ("unhealthy", style.WARNING)
)


def container_states(braces: str, width: int, height: int = 5, of: str = "") -> Timeline:
    return Timeline(
        title="Containers",
        about=(
            "State of each container. Good: running. A container that ends with an error and is "
            "not started again is TrainingContainerStopped; a container that keeps restarting is "
            "TrainingContainerRestartLoop, and all restarts of its run are held."
        ),
        queries=[
            Query(
                coded(f"trainwarden_container_state{braces}", "state", codes(STATE_WORDS)),
                f"{of}{{{{run}}}} {{{{container}}}}",
                why.NO_CONTAINERS,
            )
        ],
        width=width,
        height=height,
        meanings=STATE_WORDS,
    )
