"""Judges the shipped rules over hundreds of runs, healthy and faulty, by the real rule engine.

python -m verdicts                        # from the folder bench; writes docs/verdicts.md
python -m verdicts --healthy 29 --faulty 0 --only-print
python -m verdicts --fresh --healthy 3000 --faulty 0
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bounds import share_at_most
from stack import find_binaries
from verdicts.bench import run
from verdicts.cases import cases
from verdicts.judging import Judgement
from verdicts.report import critical, ordered, page

SEED = 909091
HEALTHY, FAULTY = 310, 370
PAGE = Path(__file__).resolve().parents[2] / "docs" / "verdicts.md"


def main() -> int:
    """0 when all was judged, and nothing was missed, late or false."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--healthy", type=int, default=HEALTHY)
    parser.add_argument("--faulty", type=int, default=FAULTY)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--match", default="", help="only cases with this in their name")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only-print", action="store_true", help="leave docs/verdicts.md alone")
    parser.add_argument(
        "--fresh", action="store_true", help="draw a seed, print the bounds, leave the page alone"
    )
    options = parser.parse_args()
    if options.fresh:
        options.seed = secrets.randbelow(10**9)
        print(f"seed {options.seed}", flush=True)

    chosen = cases(options.seed, healthy=options.healthy, faulty=options.faulty)
    chosen = tuple(case for case in chosen if options.match in case.name)
    began = time.monotonic()
    done: list[Judgement] = []
    failed = 0
    for batch in run(chosen, find_binaries().promtool, workers=options.processes):
        done += batch.judgements
        for judgement in batch.judgements:
            for line in _summary(judgement):
                print(line, flush=True)
        if batch.error:
            failed += len(batch.cases)
            numbers = ", ".join(str(case.number) for case in batch.cases)
            print(f"not judged: {numbers}: {batch.error}", flush=True)
        seconds = time.monotonic() - began
        print(f"{len(done)} of {len(chosen)} runs judged after {seconds:.0f} s", file=sys.stderr)
    done.sort(key=lambda one: one.case.number)
    if options.fresh:
        for line in _bounds([one for one in done if not one.case.faulty]):
            print(line)
    elif options.only_print:
        print(page(done, options.seed))
    elif failed:
        print(f"{failed} runs were not judged: {PAGE} stays as it is", file=sys.stderr)
    else:
        PAGE.write_text(page(done, options.seed))
    return 0 if not failed and all(one.good for one in done) else 1


def _bounds(healthy: Sequence[Judgement]) -> list[str]:
    counts = {
        "a false alarm": sum(bool(one.wrong) for one in healthy),
        "an order to the remediator": ordered(healthy),
        "a false critical alert": critical(healthy),
    }
    return [
        f"{count} of {len(healthy)} healthy runs with {what}: with 95 % confidence at most "
        f"{100 * share_at_most(count, len(healthy)):.2g} % of runs"
        for what, count in counts.items()
    ]


def _summary(judgement: Judgement) -> list[str]:
    if judgement.good:
        return []
    case = judgement.case
    lines = [f"{case.number} {case.name} on {case.framework} ({case.seed})"]
    for one in judgement.findings:
        if one.delay is None:
            lines.append(f"    missed {one.expected.alert} {one.expected.severity}")
        elif one.late:
            lines.append(f"    late {one.expected.alert}: {one.delay:.0f} s of {one.within:.0f} s")
    for wrong in judgement.wrong:
        labels = {k: v for k, v in wrong.labels.items() if k not in ("job", "instance", "run")}
        lines.append(
            f"    false at {wrong.first:.0f} s for {wrong.length}, fault at {judgement.struck:.0f}"
            f"{', notified' if wrong.notified else ', muted'}: {labels}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
