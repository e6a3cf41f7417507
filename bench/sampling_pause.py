"""The longest gap that ranks see in their own loop while their stacks are read, and without that.

python bench/sampling_pause.py [--ranks 16] [--rounds 30]

Each rank sleeps for two milliseconds again and again, and keeps the longest time that it took more.
In half of the rounds py-spy reads the stacks of all ranks, one after the other, as in a silence of
a run; the other half is as long. On a host with other work, gaps come from that, too: compare.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import MutableSequence, Sequence
from multiprocessing.sharedctypes import RawArray
from pathlib import Path

from trainwarden_exporter.processes.stacks.py_spy import read_stacks

MAX_GAP_SECONDS = 0.05
LOOP_SECONDS = 0.002


def loop(rank: int, gaps: MutableSequence[float]) -> None:
    """A rank; runs until it is ended."""
    last = time.monotonic()
    while True:
        time.sleep(LOOP_SECONDS)
        now = time.monotonic()
        gaps[rank] = max(gaps[rank], now - last - LOOP_SECONDS)
        last = now


def share(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def main() -> int:
    """Prints both distributions; 1 if the reading adds more than MAX_GAP_SECONDS."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    gaps = RawArray("d", options.ranks)
    ranks = [
        context.Process(target=loop, args=(at, gaps), daemon=True) for at in range(options.ranks)
    ]
    for process in ranks:
        process.start()
    time.sleep(5)
    seen: dict[bool, list[float]] = {False: [], True: []}
    stopped, seconds, cost, failed = 0, 0.0, 0.0, 0
    for at in range(2 * options.rounds):
        reads = at % 2 == 0
        gaps[:] = [0.0] * options.ranks
        began, used = time.monotonic(), os.times()
        if reads:
            for process in ranks:
                failed += not read_stacks(process.pid or 0).threads
                status = Path(f"/proc/{process.pid}/status").read_text()
                stopped += "TracerPid:\t0\n" not in status
            seconds = time.monotonic() - began
            after = os.times()
            cost += after.children_user + after.children_system
            cost -= used.children_user + used.children_system
        else:
            time.sleep(seconds)
        seen[reads] += list(gaps)
    for process in ranks:
        process.kill()
    print(f"{options.ranks} ranks, {options.rounds} rounds; {failed} stacks not read,")
    print(f"{stopped} times a rank had a tracer; CPU of a round {cost / options.rounds:.2f} s")
    print("longest gap of a rank in a round, ms   median   p99   most")
    for reads, name in ((False, "without"), (True, "while its stacks are read")):
        row = (statistics.median(seen[reads]), share(seen[reads], 0.99), max(seen[reads]))
        print(f"{name:37}  " + "  ".join(f"{1e3 * value:6.1f}" for value in row))
    added = share(seen[True], 0.99) - share(seen[False], 0.99)
    print(f"added at p99: {1e3 * added:.1f} ms, of {1e3 * MAX_GAP_SECONDS:.0f} ms allowed")
    return int(added > MAX_GAP_SECONDS or stopped > 0)


if __name__ == "__main__":
    sys.exit(main())
