"""Faults of the run itself, of its batches, checkpoints and logs."""

from __future__ import annotations

from trainwarden_exporter.checkpoints.damages import DamageKind
from trainwarden_exporter.frameworks.base import Phase
from verdicts.box import Happening
from verdicts.faults import (
    Strike,
    until,
)
from verdicts.parts import Log
from verdicts.run import Run
from verdicts.shapes import RUN

LINES = (
    *("nccl_timeout", "disk_error", "ray_death", "gpu_out_of_memory", "host_out_of_memory"),
    *("gpu_busy", "engine_died", "weight_update_timeout", "checkpoint_failed", "process_killed"),
)
"""Error lines that alert individually."""
KNOWN = 8
"""Steps after which a usual one is known."""


def _trains(run: Run) -> bool:
    phase = run.box.tracker.phase(RUN)
    return run.busy and run.step > KNOWN and phase is not None and phase[0] is Phase.TRAINING


def hangs(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _trains(run))
    run.hangs = True
    strike()


def hangs_after_trouble(run: Run, strike: Strike) -> Happening:
    """It reports the cause: the watchdog of a hung collective logs it."""
    yield from until(run, lambda: _trains(run))
    run.hangs = True
    strike()
    yield run.box.rng.uniform(1, 30)
    run.box.logs[run.box.known.log].trouble("nccl_timeout", run.box.now)


def trainer_unwatched(run: Run) -> None:
    run.trainer.watched = False


def update_too_slow(run: Run, strike: Strike) -> Happening:
    run.update_takes = run.box.rng.uniform(685, 890)

    def shown() -> bool:
        phase = run.box.tracker.phase(RUN)
        reported = phase is not None and phase[0] is Phase.UPDATING_WEIGHTS
        if reported and phase is not None and run.box.now - phase[1] > 675.0:  # noqa: PLR2004 - 0.75 * 900
            return True
        # the update under way may have been of the usual length
        values = (log.values.get("weight_update_seconds") for log in run.box.logs.values())
        return any(value is not None and value[0] == run.update_takes for value in values)

    yield from until(run, shown)
    strike()


def rank_is_slow(run: Run, strike: Strike) -> Happening:
    """Its GPU is throttled, or another program has its cores."""
    yield from until(run, lambda: _trains(run))
    rank = run.box.rng.choice(list(run.box.ranks.late))
    run.box.ranks.late[rank] = run.box.shape.step * run.box.rng.uniform(0.2, 0.5)
    strike()


LATER = 600.0
"""Seconds between two resumes: too rare for a restart loop."""


def resumes_again_and_again(run: Run, strike: Strike) -> Happening:
    """It makes the same steps again and again, each time with a slow start before."""
    origin = run.step
    strike()
    while True:
        run.end()
        run.trainer.end(1)
        yield run.box.rng.uniform(1, 9)
        run.begin(resumed=origin, compile_seconds=0.6 * LATER)
        yield LATER


def _waits(run: Run) -> bool:
    return run.generating and not run.evaluating and run.step > KNOWN


def batch_never_comes(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _waits(run))
    run.starved = True
    strike()


def folder_not_writable(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _waits(run))
    run.starved = True
    run.box.rollouts["folder_writable"] = 0.0
    strike()


def writable(run: Run) -> None:
    run.box.rollouts["folder_writable"] = 1.0


def producer_dies(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _waits(run))
    next(one for one in run.box.workers if one.role == "orchestrator").end(1)
    strike()


def lags(run: Run, strike: Strike) -> Happening:
    run.keeps_up = False
    lag = float(run.box.rng.randrange(2, 20))
    run.box.rollouts |= {"lag_steps": lag, "lag_limit_steps": 1.0}
    strike()
    yield 1.0


def stale_policy(run: Run, strike: Strike) -> Happening:
    staleness = float(run.box.rng.randrange(9, 40))
    run.box.rollouts |= {"staleness_steps": staleness, "staleness_limit_steps": 8.0}
    strike()
    yield 1.0


def saves_nothing(run: Run, strike: Strike) -> Happening:
    run.saves_nothing = True
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - the shape saves
    assert saves.interval is not None  # noqa: S101 - as it needs
    yield from until(run, lambda: saves.begun is None)
    last = max([run.trainer.started, *(moment for _, moment in saves.complete)])
    yield max(0.0, last + 2 * saves.interval - run.box.now)
    strike()


def save_dies(run: Run, strike: Strike) -> Happening:
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - the shape saves
    run.save_dies = True
    yield from until(run, lambda: not run.save_dies, most=3600)
    run.saves_nothing = True
    strike()


def recovery_mismatch(run: Run, strike: Strike) -> Happening:
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - the shape saves
    yield from until(run, lambda: bool(saves.complete) and saves.begun is None, most=3600)
    run.saves_nothing = True
    saves.recovery = False
    strike()


def save_damaged(run: Run, strike: Strike) -> Happening:
    """The disk loses a part of the newest checkpoint, which a resume would take."""
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - the shape saves
    yield from until(run, lambda: bool(saves.complete) and saves.begun is None, most=3600)
    run.saves_nothing = True
    strike()
    yield run.box.rng.uniform(20, 60)  # the exporter reads it when it is quiet
    saves.damaged, saves.resume_damaged = {DamageKind.TRUNCATED: 1}, True


def older_save_damaged(run: Run, strike: Strike) -> Happening:
    """A checkpoint loses a file, and others are newer."""
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - the shape saves
    yield from until(run, lambda: len(saves.complete) > 1, most=3600)
    strike()
    yield run.box.rng.uniform(20, 60)
    saves.damaged = {DamageKind.MISSING: 1}


def resumes_elsewhere(run: Run, strike: Strike) -> Happening:
    """It is started without the option to resume, or its tracker file names an older checkpoint."""
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - the shape saves
    yield from until(run, lambda: len(saves.complete) > 1 and saves.begun is None, most=3600)
    run.end()
    run.trainer.end(1)
    yield run.box.rng.uniform(1, 9)
    origin = run.box.rng.choice((0, saves.complete[-2][0]))
    run.begin(resumed=origin)
    yield from until(run, lambda: run.step == origin + 1, most=3600)
    strike()


def _is_no_number(run: Run, name: str, strike: Strike) -> Happening:
    log = run.box.logs[run.box.known.log]
    log.finite.setdefault(name, True)
    run.bad.add(name)
    yield from until(run, lambda: not log.finite[name])
    strike()


def loss_not_finite(run: Run, strike: Strike) -> Happening:
    yield from _is_no_number(run, "loss", strike)


def gradient_not_finite(run: Run, strike: Strike) -> Happening:
    yield from _is_no_number(run, "grad_norm", strike)


def goes_silent(run: Run, strike: Strike) -> Happening:
    """It logs elsewhere since its file was rotated; nothing else is wrong."""
    log = run.box.logs["extra"]
    log.grows = False
    yield max(0.0, log.written + (log.silence_limit or 0.0) - run.box.now)
    strike()


def extra_log(run: Run) -> None:
    written = run.box.now
    run.box.logs["extra"] = Log(RUN, "extra", "reward", "", written, silence_limit=600.0)


def one_bad_line(run: Run, strike: Strike) -> Happening:
    log = run.box.logs[run.box.known.log]
    log.trouble(run.box.rng.choice(LINES), run.box.now)
    strike()
    yield 1.0


def storm(run: Run, strike: Strike) -> Happening:
    log = run.box.logs[run.box.known.log]
    strike()
    for _ in range(200):
        log.trouble("connection_refused", run.box.now)
        yield run.box.rng.uniform(1, 4)


def brake(run: Run, strike: Strike) -> Happening:
    log = run.box.logs[run.box.known.log]
    log.worker, pace = run.trainer.name, run.box.rng.uniform(2, 9)
    for count in range(1, 200):
        log.last_match["brake"] = log.written = run.box.now
        log.streaks["brake"] = count
        if count == 10:  # noqa: PLR2004 - ten in a row
            strike()
        yield pace
