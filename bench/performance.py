"""Runs every bench, prints what they found, and writes docs/performance.md and its pictures.

    python bench/performance.py [--nights FILE] [--only rules faults]

FILE holds what `make nights` printed. About ten minutes on two cores that do nothing else; of
--only some, nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import faults
import gpus
import inference_probes
import log_following
import many
import rules_growth
import scrapes
from programs import peer
from results import Growth, Result, picture

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
PICTURE = PAGE.parent / "pictures" / "performance-growth.svg"
NIGHTS_HEADING = ["night", "what"]

Bench = Callable[[], Result | str]
"""Measures; a text, with its own heading, where what it prints says all."""


def probes() -> str:
    """What it takes to ask many servers, of which some hang."""
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        inference_probes.bench(servers=200, hanging=50, rounds=20)
    return printed("Inference probes", heard.getvalue())


def storm() -> str:
    """How the remediator answers many webhooks."""
    command: list[str | Path] = [sys.executable, HERE / "webhook_storm.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"webhook_storm.py failed:\n{done.stderr}")
    return printed("A storm of webhooks", done.stdout)


def printed(title: str, text: str) -> str:
    """What a program printed, as a section."""
    return f"## {title}\n\n```text\n{text.strip()}\n```\n"


BENCHES: dict[str, Bench] = {
    "scrapes": scrapes.bench,
    "logs": log_following.bench,
    "gpus": gpus.bench,
    "many": many.bench,
    "faults": faults.bench,
    "rules": rules_growth.bench,
    "probes": probes,
    "storm": storm,
}
"""In the order of the page."""


def nights(text: str) -> str:
    """The table of `make nights` in what it printed. Raises SystemExit where there is none."""
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if line.split()[:2] == NIGHTS_HEADING), None)
    if first is None:
        raise SystemExit("that is not what `make nights` prints")
    rows = itertools.takewhile(
        lambda line: line.split()[:1] and line.split()[0].isdigit(), lines[first + 1 :]
    )
    return printed("The five nights", "\n".join([lines[first], *rows]))


def machine() -> str:
    """What this was measured on, in one line."""
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = {line.partition(":")[2].strip() for line in facts.splitlines() if "model name" in line}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({', '.join(sorted(models)) or platform.machine()}), "
        f"{memory:.0f} GiB of memory, Linux {platform.release()}"
    )


def versions() -> str:
    """What was measured, beside ours, in one line."""
    peers = ("prometheus-process-exporter", "prometheus-node-exporter", "prometheus", "mtail")
    known = [f"{name.removeprefix('prometheus-')} {peer(name)[1]}" for name in peers]
    return ", ".join(
        [f"Trainwarden {version('trainwarden')}, Python {platform.python_version()}", *known]
    )


def page(sections: Sequence[str], growths: Sequence[Growth]) -> str:
    """The whole page."""
    about = (
        "Written by `make bench`, which runs all programs beside each other in one run: what "
        "counts is their ratio, for a busier machine slows them all."
    )
    parts = (
        "# Performance",
        about,
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}: {versions()}.",
        *map(str.strip, sections),
        "## Growth",
        f"![How costs grow]({PICTURE.relative_to(PAGE.parent)})",
        "\n".join(f"- {one}." for one in growths),
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nights", type=Path, help="what `make nights` printed")
    parser.add_argument("--only", nargs="+", choices=BENCHES)
    options = parser.parse_args()
    sections, growths = list[str](), list[Growth]()
    for name in options.only or BENCHES:
        found = BENCHES[name]()
        print(found if isinstance(found, str) else found.text(), flush=True)
        if isinstance(found, Result):
            growths += found.growth
        sections.append(found if isinstance(found, str) else found.page())
    if options.nights is not None:
        sections.append(nights(options.nights.read_text(encoding="utf-8")))
    if options.only:
        return
    PAGE.write_text(page(sections, growths), encoding="utf-8")
    picture(growths).savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
