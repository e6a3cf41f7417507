"""Runs every bench, prints what they found, and writes docs/performance.md and its picture.

    python bench/performance.py [--nights FILE] [--only rules faults]

FILE holds what `make nights` printed. Half an hour on two cores that do nothing else. Of --only
some, it renews their sections of the page, but not if one shows how a cost grows: growths share a
picture. A bench that fails leaves its reason on the page, and the others go on; the end is then
not 0.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import platform
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import beats
import faults
import gpus
import inference_probes
import log_following
import many
import pages_touched
import replaced
import rules_growth
import scrapes
import webhook_storm
import wrapped
from peers import NEWEST, PeerMissing, peer, python_peer
from results import Result, picture
from targets import JUDGES, Target, judged

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
PICTURE = PAGE.parent / "pictures" / "performance-growth.svg"
NIGHTS_HEADING = ["night", "what"]

BENCHES: dict[str, Callable[[], Result]] = {
    "scrapes": scrapes.bench,
    "pages": pages_touched.bench,
    "replaced": replaced.bench,
    "logs": log_following.bench,
    "gpus": gpus.bench,
    "many": many.bench,
    "probes": inference_probes.bench,
    "faults": faults.bench,
    "rules": rules_growth.bench,
    "rules_newest": rules_growth.bench_newest,
    "storm": webhook_storm.bench,
    "beats": beats.bench,
    "wrapped": wrapped.bench,
}
"""In the order of the page."""


def nights(text: str | None) -> Result:
    """The table of `make nights` in what it printed. Raises SystemExit where there is none."""
    lines = ("" if text is None else text).splitlines()
    first = next((n for n, line in enumerate(lines) if line.split()[:2] == NIGHTS_HEADING), None)
    if first is None and text is not None:
        raise SystemExit("that is not what `make nights` prints")
    rows = itertools.takewhile(
        re.compile(r" +\d+ ").match,  # the line with the number of tests is not indented
        lines[len(lines) if first is None else first + 1 :],
    )
    columns = ("night", "what", "seconds", "limit", "")
    parts = [re.split(r"\s{2,}", line.strip()) for line in rows]
    about = (
        "Not part of this run: `make nights` measures them, `make bench NIGHTS=file` shows them."
        if text is None
        else "From the fault to the alert to the healed run, end to end, as shipped: seconds. A "
        "worker counts as healed once it has lived for 30 s, a trainer once it has made a new step."
    )
    cells = tuple(tuple([*part, "", ""][: len(columns)]) for part in parts)
    return Result("The five nights", about, columns, cells)


def machine() -> str:
    """What this was measured on, in one line."""
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = {line.partition(":")[2].strip() for line in facts.splitlines() if "model name" in line}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({', '.join(sorted(models)) or platform.machine()}), "
        f"{memory:.0f} GiB of memory, Linux {platform.release().partition('-')[0]}"
    )


def versions() -> str:
    """What was measured, beside ours, in one line."""
    asked: dict[str, Callable[[], str]] = {
        "process-exporter": lambda: peer("prometheus-process-exporter")[1],
        "process-exporter of the newest suite": lambda: peer("prometheus-process-exporter", NEWEST)[
            1
        ],
        "node_exporter": lambda: peer("prometheus-node-exporter")[1],
        "blackbox_exporter": lambda: peer("prometheus-blackbox-exporter")[1],
        "mtail": lambda: peer("mtail")[1],
        "nvitop-exporter": lambda: python_peer("nvitop-exporter")[1],
        "Prometheus": rules_growth.prometheus_version,
    }
    known = [f"Trainwarden {version('trainwarden')}", f"Python {platform.python_version()}"]
    for name, ask in asked.items():
        try:
            known.append(f"{name} {ask()}")
        except PeerMissing as error:
            known.append(f"{name} not measured ({error})")
    return ", ".join(known)


def verdict(targets: Sequence[Target], missing: Sequence[str]) -> str:
    """How many targets were met, and which."""
    met = sum(one.met for one in targets)
    text = f"Of {len(targets)} targets that were set, {met} were met."
    if missing:
        text += f" No result from: {', '.join(missing)}; see there."
    rows = "\n".join(map(_row, targets))
    return f"{text}\n\n| target | asked | found | met |\n| --- | --- | --- | --- |\n{rows}"


def _row(target: Target) -> str:
    met = "yes" if target.met else "**no**"
    return f"| {target.what} | {target.bound} | {target.found} | {met} |"


def renewed(text: str, results: Mapping[str, Result]) -> str:
    """The page with these sections and their targets in place of the old ones, or added."""
    for result in results.values():
        about = f"{result.about} Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}."
        section = replace(result, about=about).page().strip() + "\n\n"
        old = rf"(?ms)^## {re.escape(result.title)}\n.*?(?=^## )"
        before = old if re.search(old, text) else r"(?m)^(?=## The five nights$)"
        text = re.sub(before, lambda _, section=section: section, text, count=1)  # type: ignore[misc]
    rows = re.findall(r"(?m)^\| .* \| (?:yes|\*\*no\*\*) \|$", text.partition("\n## ")[0])
    table = {row.split(" | ")[0]: row for row in rows}
    table |= {(row := _row(target)).split(" | ")[0]: row for target in judged(results)}
    text = text.replace("\n".join(rows), "\n".join(table.values()))
    met = sum(row.endswith("yes |") for row in table.values())
    return re.sub(
        r"Of \d+ targets that were set, \d+", f"Of {len(table)} targets that were set, {met}", text
    )


def page(results: Mapping[str, Result], failed: Mapping[str, str], nights_result: Result) -> str:
    """The whole page: what was found, what could not be measured and why, and the nights."""
    about = (
        "One exporter replaces five programs, so it has to cost less than they do together, "
        "and never to make a scrape wait. `make bench` runs all of them beside each other in one "
        "run and writes this page. What counts are the ratios: a busier machine slows them all. "
        "A share behind ≤ is what a number of none leaves open, with 95 % confidence. "
        "CPU is user and system time of the whole program."
    )
    growths = [growth for result in results.values() for growth in result.growth]
    sections = [
        results[name].page() if name in results else f"## {name.capitalize()}\n\n{failed[name]}\n"
        for name in BENCHES
        if name in results or name in failed
    ]
    parts = (
        "# Performance",
        about,
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}: {versions()}.",
        verdict(
            judged({**results, "nights": nights_result}),
            [name for name in failed if name in JUDGES],
        ),
        *map(str.strip, [*sections, nights_result.page()]),
        "## Growth",
        f"![How costs grow]({PICTURE.relative_to(PAGE.parent)})",
        "\n".join(f"- {one}." for one in growths),
    )
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Measure, print, and write; 1 when a bench failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nights", type=Path, help="what `make nights` printed")
    parser.add_argument("--only", nargs="+", choices=BENCHES)
    options = parser.parse_args()
    nights_result = nights(options.nights and options.nights.read_text(encoding="utf-8"))
    results, failed = dict[str, Result](), dict[str, str]()
    for name in options.only or BENCHES:
        began = time.monotonic()
        try:
            # each in a process of its own: none finds memory and files that another has left
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                results[name] = pool.submit(BENCHES[name]).result()
            print(results[name].text(), flush=True)
        except (SystemExit, Exception) as error:  # noqa: BLE001 - the others can still be had
            traceback.print_exc()
            failed[name] = f"It could not be measured: {error}."
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(verdict(judged(results), list(failed)))
    if options.only and not any(result.growth for result in results.values()):
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    if not options.only:
        PAGE.write_text(page(results, failed, nights_result), encoding="utf-8")
        PICTURE.parent.mkdir(exist_ok=True)
        growths = [growth for result in results.values() for growth in result.growth]
        picture(growths).savefig(PICTURE, metadata={"Date": None})
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
