"""What goes wrong in the exporter and the remediator themselves."""

from __future__ import annotations

from verdicts.box import Happening
from verdicts.faults import Strike
from verdicts.run import Run
from verdicts.shapes import RUN, chance


def exporter_dies(run: Run, strike: Strike) -> Happening:
    run.box.exporter_up = False
    strike()
    yield 0.0


def scraped_seldom(run: Run, strike: Strike) -> Happening:
    run.box.sparse = run.box.rng.choice((2, 3, 6, 12))
    strike()
    yield 0.0


def collector_fails(run: Run, strike: Strike) -> Happening:
    run.box.failing.add(run.box.rng.choice(("host", "workers", "gpu", "disk", "logs")))
    strike()
    yield 0.0


def goes_blind(run: Run, strike: Strike) -> Happening:
    box = run.box
    choices = ["disk", "logs"]
    choices += ["checkpoints"] * (box.saves is not None) + ["inference"] * bool(box.servers)
    choices += ["container"] * bool(box.containers) + ["xid"] * bool(box.gpus.devices)
    choices += ["heartbeat"] * any(beat.file for beat in box.heartbeats)
    choices += ["rollouts"] * box.shape.rollout_folder
    match box.rng.choice(choices):
        case "disk":
            box.disks[0].up = False
        case "logs":
            for log in box.logs.values():
                log.seen = box.now
        case "checkpoints" if box.saves is not None:
            box.saves.blind = True
        case "inference":
            box.servers[0].blind = True
        case "container":
            box.containers[0].engine = "forbidden"
            box.containers[0].seen = box.now
        case "heartbeat":
            next(beat for beat in box.heartbeats if beat.file).seen = box.now
        case "rollouts":
            box.rollouts_seen = box.now
        case _:
            box.gpus.watching = False
    strike()
    yield 0.0


def config_refused(run: Run, strike: Strike) -> Happening:
    if chance(run.box.rng, 0.5):
        run.box.config_good = False
    else:
        run.box.remediator.config = False
    strike()
    yield 0.0


def configs_differ(run: Run, strike: Strike) -> Happening:
    """Its file is edited, and only the remediator has read it."""
    run.box.remediator.workers_hash += 1
    strike()
    yield 0.0


def remediator_dies(run: Run, strike: Strike) -> Happening:
    run.box.remediator.up = False
    strike()
    yield 0.0


def remediator_deaf(run: Run, strike: Strike) -> Happening:
    run.box.remediator.hears = False
    strike()
    yield 0.0


def remediator_blocked(run: Run, strike: Strike) -> Happening:
    run.box.remediator.blocked = run.box.now - 1800.0
    strike()
    yield 0.0


def breaker_opens(run: Run, strike: Strike) -> Happening:
    run.box.remediator.breaker = True
    strike()
    yield 0.0


def remediator_gives_up(run: Run, strike: Strike) -> Happening:
    run.box.remediator.gave_up[run.trainer.name] = True
    strike()
    yield 0.0


def remediator_held(run: Run, strike: Strike) -> Happening:
    """An operator sets a hold, on all or a part, and forgets it."""
    whole, part, one = ("", ""), (RUN, ""), (RUN, run.trainer.name)
    run.box.remediator.hold = run.box.rng.choice((whole, part, one))
    strike()
    yield 0.0


def remediator_starves(run: Run, strike: Strike) -> Happening:
    """For some of its turns it gets no memory."""
    run.box.remediator.broken_off += run.box.rng.randrange(1, 20)
    strike()
    yield 0.0


def person_not_reached(run: Run, strike: Strike) -> Happening:
    """Who delivers its messages does not answer, or turns them away for good."""
    if chance(run.box.rng, 0.5):
        run.box.remediator.unsent = run.box.now
    else:
        run.box.remediator.dropped += run.box.rng.randrange(1, 4)
    strike()
    yield 0.0
