"""Prints what Trainwarden sees of the GPUs of this box beside what nvidia-smi says, and its cost.

    python bench/gpu_check.py [--collections 20] [--config.file exporter.yml]

The two read one after the other, so changing values (load, power, clocks) may differ a little;
what does not must not. Ends with 1 when nvidia-smi is missing, or something differs that must not.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nvidia_smi import CheckError, Row, ask, compare, compare_processes, supported_fields
from trainwarden_exporter.collectors.gpu import GpuCollector
from trainwarden_exporter.config import Config, load_config
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.gpu.model import GpuReading, NvLink
from trainwarden_exporter.gpu.snapshot import take_gpu_snapshot


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the check; 0 when all agrees, 1 when not, or when it cannot be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collections", type=int, default=20, help="collections for the median")
    parser.add_argument("--config.file", dest="config_file", type=Path, help="an exporter.yml")
    options = parser.parse_args(arguments)
    try:
        config = Config() if options.config_file is None else load_config(options.config_file)
        return check(config, options.collections)
    except (CheckError, ConfigError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1


def check(config: Config, collections: int) -> int:
    """As `main`. Raises CheckError."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        raise CheckError(
            "there is no nvidia-smi on PATH to compare with: this is for a box with an NVIDIA GPU"
        )
    fields = supported_fields(smi)
    theirs = ask(smi, "gpu", ["index", *fields])
    view = take_gpu_snapshot(config.gpu, config.runs)
    if view.driver.state != "ok":
        raise CheckError(f"the driver's state is {view.driver.state}: {view.driver.reason}")
    versions = view.driver.versions
    print(f"driver {versions.driver if versions else '?'}, {len(view.driver.gpus)} GPU(s)")
    different = 0
    for gpu in view.driver.gpus:
        answers = next((row for row in theirs if row["index"] == gpu.key.gpu), None)
        if answers is None:
            raise CheckError(f"nvidia-smi does not know GPU {gpu.key.gpu}")
        rows = list(compare(gpu, answers))
        different += sum(row.verdict == "differs" for row in rows)
        print(f"\nGPU {gpu.key.gpu}")
        print(table(rows))
        print(further(gpu))
    print("\nprocesses")
    rows = compare_processes(view, ask(smi, "compute-apps", ["gpu_uuid", "pid", "used_memory"]))
    print(table(rows) if rows else "  neither lists one")
    different += sum(row.verdict == "differs" for row in rows)
    first, median, worst = cost(config, collections)
    print(
        f"\none collection: {median:.1f} ms (median of {collections}; the first {first:.1f} ms, "
        f"the slowest {worst:.1f} ms)"
    )
    print(f"{different} value(s) differ that must not" if different else "all that must agree does")
    return int(different > 0)


def cost(config: Config, collections: int) -> tuple[float, float, float]:
    """Milliseconds that a collection takes: the first, the median of the others, the slowest."""
    collector = GpuCollector(config.gpu, config.runs)
    taken = []
    for _ in range(max(collections, 1) + 1):
        started = time.perf_counter()
        for _family in collector.collect():
            pass
        taken.append((time.perf_counter() - started) * 1000)
    return taken[0], statistics.median(taken[1:]), max(taken[1:])


def further(gpu: GpuReading) -> str:
    """Prints the values to compare manually with `nvidia-smi -q`."""
    throttling = ", ".join(reason for reason, active in gpu.throttling.items() if active)
    facts = {
        "energy": None if gpu.energy_joules is None else f"{gpu.energy_joules:.0f} J",
        "slowdown at": None if gpu.slowdown_celsius is None else f"{gpu.slowdown_celsius:g} °C",
        "held down by": throttling or None,
        "retired pages": dict(gpu.retired_pages) or None,
        "remapped rows": gpu.remapping,
        "PCIe replays": gpu.pcie_replays,
        "NVLinks up": _links(gpu.nvlinks),
        "MIG": [instance.uuid for instance in gpu.mig] or None,
        "not answered": ", ".join(gpu.failures) or None,
    }
    return "\n".join(f"  {name}: {fact}" for name, fact in facts.items() if fact is not None)


def table(rows: Sequence[Row]) -> str:
    """The rows, aligned, under a heading."""
    cells = [
        ("", "Trainwarden", "nvidia-smi", ""),
        *((row.what, row.ours, row.theirs, row.verdict) for row in rows),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _links(links: Sequence[NvLink]) -> str | None:
    return f"{sum(link.up for link in links)} of {len(links)}" if links else None


if __name__ == "__main__":
    sys.exit(main())
