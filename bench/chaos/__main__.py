"""Faults in real programs under four supervisors; what they cost is written to docs/chaos.md.

python -m chaos                           # from the folder bench
python -m chaos --minutes 5 --gap 60 --results /tmp/chaos.json
python -m chaos --page /tmp/chaos.json    # only writes the page

Lines under the key `notes` of the results, which a reader of them adds, are on the page too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from chaos import faults
from chaos.keepers import KEEPERS, Keeper, Trainwarden
from chaos.page import page, summary
from chaos.programs import PYTHON, VLLM, Truth, make
from chaos.striking import Record, Striker
from stack import PROJECT

SEED = 20261128
PAGE = PROJECT / "docs" / "chaos.md"
RESULTS = PROJECT / ".stack" / "chaos.json"
FAULTY = "faulty"
SERVED = "served-1"
"""Under Trainwarden alone: its server takes 3 GB of memory."""
WATCHED: Mapping[str, str] = {
    **{f"trainer-{number}": FAULTY for number in range(1, 6)},
    "sft-1": FAULTY,
    **{f"plain-{number}": FAULTY for number in range(1, 11)},
    **{f"search-{number}": FAULTY for number in range(1, 7)},
    "ray-1": FAULTY,
    SERVED: FAULTY,
    "trainer-spared": "spared",
    "plain-spared": "spared",
    "plain-ends": "ends:500",
    "trainer-ends": "ends:300",
}
OTHERS: Mapping[str, str] = {
    name: role
    for name, role in WATCHED.items()
    if name in ("trainer-1", "plain-1", "search-1", "plain-ends")
}
"""The others keep fewer programs, so that all are measured at once, on one host."""
LOAD_SECONDS = 10.0
FIRST_STEP_SECONDS = 300.0


def main() -> int:
    """Run all, or write the page of what a run found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--gap", type=float, default=faults.GAP, help="between faults of a program")
    parser.add_argument("--only", default="", help="names of programs, with commas")
    parser.add_argument("--under", default="", help="names of supervisors, with commas")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, help="keep all files there")
    parser.add_argument("--page", type=Path, metavar="RESULTS")
    options = parser.parse_args()
    if options.page is not None:
        PAGE.write_text(page(json.loads(options.page.read_text())))
        return 0
    if not PYTHON.exists():
        print(f"{PYTHON} is missing: make test-real installs the frameworks", file=sys.stderr)
        return 2
    folder = options.folder or Path(tempfile.mkdtemp(prefix="chaos"))
    found = Run(folder, options).run()
    options.results.write_text(json.dumps(found, indent=1) + "\n")
    for line in summary(found):
        print(line)
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class Run:
    """All supervisors at once, each with its own programs."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._seed, self._seconds, self._gap = options.seed, options.minutes * 60, options.gap
        self._over = threading.Event()
        self._load: list[tuple[float, float, float]] = []
        only, under = options.only.split(","), options.under.split(",")
        self._keepers: list[Keeper] = []
        for keeper in KEEPERS:
            if options.under and keeper.name not in under:
                continue
            if missing := keeper.missing():
                print(f"left out: {keeper.name}: {missing}", file=sys.stderr)
                continue
            names = WATCHED if keeper is Trainwarden else OTHERS
            names = {name: role for name, role in names.items() if not options.only or name in only}
            if not VLLM.exists() and names.pop(SERVED, ""):
                print(f"left out: {SERVED}: {VLLM}", file=sys.stderr)
            place = folder / keeper.__name__.lower()
            self._keepers.append(keeper(place, make(names, place, own_disk=os.getuid() == 0)))

    def run(self) -> dict[str, Any]:
        """Returns what each supervisor's programs recorded, and each fault."""
        signal.signal(signal.SIGTERM, lambda *_: self._over.set())
        try:
            for keeper in self._keepers:
                keeper.start()
            self._wait_for_steps()
            return self._strike()
        finally:
            self._over.set()
            for keeper in self._keepers:
                keeper.end()
                for program in keeper.programs:
                    program.close()

    def _wait_for_steps(self) -> None:
        """Raises RuntimeError where a program makes no step: its row would be of nothing."""
        programs = [program for keeper in self._keepers for program in keeper.programs]
        deadline = time.monotonic() + FIRST_STEP_SECONDS
        while waited := [one for one in programs if not Truth(one.folder).of("step")]:
            if time.monotonic() > deadline:
                first = waited[0]
                raise RuntimeError(f"{first.name}: no step:\n{first.log.read_text()[-2000:]}")
            if self._over.wait(1.0):
                return
            programs = waited

    def _strike(self) -> dict[str, Any]:
        begin = time.time()
        struck = {keeper.name: list[Record]() for keeper in self._keepers}
        threads = [
            threading.Thread(target=self._strike_all, args=(keeper, begin, struck[keeper.name]))
            for keeper in self._keepers
        ]
        for thread in threads:
            thread.start()
        while time.time() < begin + self._seconds and not self._over.is_set():
            due = time.monotonic() + LOAD_SECONDS
            self._over.wait(LOAD_SECONDS)
            late, free = time.monotonic() - due, psutil.virtual_memory().available / 2**30
            self._load.append((os.getloadavg()[0], free, max(0.0, late)))
        end = time.time()
        self._over.set()
        for thread in threads:
            thread.join()
        return {
            "seed": self._seed,
            "begin": begin,
            "end": end,
            "gap": self._gap,
            "processors": os.cpu_count(),
            "load": [load for load, _, _ in self._load],
            "free_gib": [free for _, free, _ in self._load],
            "late": [late for _, _, late in self._load],
            "supervisors": {
                keeper.name: {
                    "about": keeper.about,
                    "programs": {
                        one.name: {
                            "spared": one.is_spared,
                            "steps": one.steps,
                            "events": Truth(one.folder).look(),
                            "server": [] if one.server is None else Truth(one.server.folder).look(),
                        }
                        for one in keeper.programs
                    },
                    "faults": struck[keeper.name],
                    **keeper.found(),
                }
                for keeper in self._keepers
            },
        }

    def _strike_all(self, keeper: Keeper, begin: float, records: list[Record]) -> None:
        """A thread for each program, since a fault may last."""
        kinds = {program.name: program.faults for program in keeper.programs}
        if os.getuid() != 0:  # no disk of its own can be filled
            kinds = {name: [k for k in own if k != "disk"] for name, own in kinds.items()}
        planned = faults.schedule(self._seed, kinds, self._seconds, gap=self._gap)
        threads = [
            threading.Thread(
                target=Striker(program, self._over.is_set, is_kept=keeper.restarts).strike_all,
                args=([one for one in planned if one.program == program.name], begin, records),
            )
            for program in keeper.programs
        ]
        parts = faults.of_parts(self._seed, self._seconds)
        if isinstance(keeper, Trainwarden):
            arguments = (keeper, parts, begin, records)
            threads.append(threading.Thread(target=self._strike_parts, args=arguments))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _strike_parts(
        self, keeper: Keeper, planned: Sequence[faults.Fault], begin: float, records: list[Record]
    ) -> None:
        for fault in planned:
            if self._over.wait(max(0.0, begin + fault.at - time.time())):
                return
            moment, what = time.time(), keeper.kill_part(fault.part)
            record = {"kind": fault.kind, "program": fault.program, "part": fault.part}
            if what:
                records.append(record | {"from": moment, "until": moment, "detail": what})
            else:
                records.append(record | {"skipped": "it was down"})


if __name__ == "__main__":
    sys.exit(main())
