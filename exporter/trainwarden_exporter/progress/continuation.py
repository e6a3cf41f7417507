"""Continues the progress of a run with what was before: reports, records, unobserved time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from trainwarden_exporter.progress.state import HEARTBEAT, RunProgress
from trainwarden_exporter.progress.step_timing import ProgressSign, StepMark


def shifted(state: RunProgress, seconds: float) -> RunProgress:
    """Returns the state on a clock that was set by `seconds`: what was before stays before."""

    def moment(one: float | None) -> float | None:
        return None if one is None else one + seconds

    def sign(one: ProgressSign | None) -> ProgressSign | None:
        return None if one is None else one._replace(timestamp=one.timestamp + seconds)

    return replace(
        state,
        reports={name: one.shifted(seconds) for name, one in state.reports.items()},
        attempt=replace(
            state.attempt,
            began=state.attempt.began + seconds,
            counts_from=state.attempt.counts_from + seconds,
        ),
        steps=tuple(mark._replace(timestamp=mark.timestamp + seconds) for mark in state.steps),
        last_sign=sign(state.last_sign),
        earlier_sign=sign(state.earlier_sign),
        phase_began_at=moment(state.phase_began_at),
        last_sign_at=moment(state.last_sign_at),
        interrupted_at=state.interrupted_at + seconds,
        lines=state.lines.shifted(seconds),
        counts=tuple(
            replace(
                one,
                began=one.began + seconds,
                training=None if one.training is None else shifted(one.training, seconds),
            )
            for one in state.counts
        ),
    )


def with_records(
    state: RunProgress, records: Sequence[tuple[int, float]], interval: int | None
) -> RunProgress:
    """Learns the pace from checkpoints on disk, while the run itself has not shown it.

    Those of this attempt count like observed signs. Those of earlier attempts may have been written
    with other settings: they only lengthen the limit.
    """
    if state.timing.usual_silence is not None:
        return state
    began = state.attempt.began
    own = [StepMark(step, at) for step, at in records if at >= began]
    state = replace(state, timing=state.timing.with_records(own))
    pairs = list(pairwise(record for record in records if record[1] < began))
    silence = max((later[1] - earlier[1] for earlier, later in pairs), default=0.0)
    if interval and pairs and all(step % interval == 0 for step, _ in records):
        # Some may have been deleted since.
        paces = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairs]
        silence = median(paces) * interval
    return replace(state, record_silence=silence)


def without_guesses(state: RunProgress, *, but_not: str) -> RunProgress:
    """Returns the state without the steps of this attempt that other sources than one reported.

    They may count something else: batches, where the run itself counts optimizer steps.
    """
    number = state.attempt.number
    others = {
        source
        for source, report in state.reports.items()
        if source != but_not and report.attempt == number
    }
    if not others:
        return state
    return replace(
        state,
        reports={name: one for name, one in state.reports.items() if name not in others},
        steps=(),
        total=None,
        bar_total=None,
        epoch_total=None,
        line_total=None,
    )


def after_unobserved_time(state: RunProgress, now: float) -> RunProgress:
    """Returns the state after an unobserved time.

    Logs and files are read completely; heartbeats in the meantime were lost, so their silence says
    nothing. The end of any silence that spanned this time is unknown.
    """
    state = replace(state, interrupted_at=now)
    has_heartbeat = any(
        source.startswith(f"{HEARTBEAT}/") and report.attempt == state.attempt.number
        for source, report in state.reports.items()
    )
    if has_heartbeat and state.last_sign_at is not None:
        return replace(state, last_sign_at=now)
    return state
