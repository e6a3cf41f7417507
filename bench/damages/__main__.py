"""Damages checkpoints of real libraries in a thousand ways, and counts which damages are found.

python -m damages FOLDER    # from the folder bench; writes docs/damages.md

FOLDER is what checkpoint_writers.py wrote.

Each trial damages the newest checkpoint of a layout and lets scanner and prover look at it, with a
clock that is a minute ahead. Sound checkpoints and saves in progress are judged the same way.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

from damages.page import LayoutResult, Tally, page
from damages.trials import Trial, content, sound, structural
from damages.yard import Yard

PAGE = Path(__file__).resolve().parents[2] / "docs" / "damages.md"
SEED = 1
WORKERS = 3


def run(source: Path) -> str:
    """Runs all trials on the layouts in `source`; returns the page."""
    with ProcessPoolExecutor(WORKERS) as pool:
        results = list(pool.map(run_layout, sorted(source.iterdir())))
    for result in results:
        misses = [miss for tally in result.tallies.values() for miss in tally.missed]
        for line in (*result.accused, *result.unproved, *misses):
            print(line, file=sys.stderr)
    return page(results)


def run_layout(layout: Path) -> LayoutResult:
    """Runs all trials on one layout."""
    random = Random(f"{SEED} {layout.name}")  # noqa: S311 - which damage, no secret
    result = LayoutResult(layout.name)
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(layout.name, layout, Path(folder))
        for trial in (*structural(yard, random), *content(yard, random)):
            _judge(yard, trial, result.tallies.setdefault(trial.kind, Tally()))
        for what, is_complete, later in sound(yard, random):
            result.healthy[what] += 1
            found = yard.prove(later=later).checkpoints
            mine = [one for one in found if one.path == str(yard.newest)]
            if any(one.damages for one in mine):
                result.accused.append(f"{layout.name}, {what}: {mine}")
            elif is_complete and mine[0].state != "proved":
                result.unproved.append(f"{layout.name}, {what}: {mine}")
        result.slowest = yard.slowest
    print(layout.name, sum(tally.trials for tally in result.tallies.values()), flush=True)
    return result


def _judge(yard: Yard, trial: Trial, tally: Tally) -> None:
    yard.restore()
    if trial.after_proof:
        yard.learn()
    trial.damage(yard.newest)
    found = yard.prove(after_proof=trial.after_proof)
    tally.trials += 1
    newest = next((one for one in found.checkpoints if one.path == str(yard.newest)), None)
    if found.tracker_problem or (newest is not None and newest.damages):
        tally.by_content += 1
    elif newest is None or newest.state in ("incomplete", "unreadable"):
        tally.as_incomplete += 1
    else:
        tally.missed.append(f"{yard.framework}: {trial.kind}: {newest}")


if __name__ == "__main__":
    PAGE.write_text(run(Path(sys.argv[1])))
