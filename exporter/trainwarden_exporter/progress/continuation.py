"""Continues the progress of a run when the clock was set. Pure."""

from __future__ import annotations

from dataclasses import replace

from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.step_timing import ProgressSign


def shifted(state: RunProgress, seconds: float) -> RunProgress:
    """Returns the state on a clock that was set by `seconds`: what was before stays before."""

    def moment(one: float | None) -> float | None:
        return None if one is None else one + seconds

    def sign(one: ProgressSign | None) -> ProgressSign | None:
        return None if one is None else one._replace(timestamp=one.timestamp + seconds)

    return replace(
        state,
        reports={name: one.shifted(seconds) for name, one in state.reports.items()},
        attempt=replace(state.attempt, began=state.attempt.began + seconds),
        steps=tuple(mark._replace(timestamp=mark.timestamp + seconds) for mark in state.steps),
        last_sign=sign(state.last_sign),
        earlier_sign=sign(state.earlier_sign),
        phase_began_at=moment(state.phase_began_at),
        last_sign_at=moment(state.last_sign_at),
        interrupted_at=state.interrupted_at + seconds,
    )
