"""Replays what real machines wrote through readers and rules; writes docs/traces.md.

TRACES=folder python -m traces                        # from the folder bench
TRACES=folder python -m traces --only-print
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from results import Result
from stack import find_binaries
from traces import captures, faults, logs, ranks, series, series_page, steps
from verdicts.arrivals import SERVERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "traces.md"
SOURCES = """\
| part | from | licence |
|---|---|---|
| step times | alibaba/clusterdata, `cluster-trace-gpu-v2020/mini-batch-time` | CC BY 4.0 |
| ranks | ByteDance-Seed/StragglerAnalysis, `data` | Apache 2.0 |
| GPU, memory, queue | alibaba/clusterdata, `cluster-trace-v2026-GenAI` | CC BY 4.0 |
| logs | bigscience-workshop/bigscience | Apache 2.0 |
| faults | stepfun-ai/InfiniteHBD-Trace | Apache 2.0 |
| cards | utkuozdemir/nvidia_gpu_exporter, `internal/captures` and `integration/testdata` | MIT |
"""
HEAD = """\
# Traces

What real machines wrote, replayed through the real readers and the shipped rules by
`TRACES=folder make bench-traces`. No number of this page comes from a model, and of its numbers
only the counts of faults are in [verdicts.md](verdicts.md). The folder holds `steps/`, `ranks/`,
`series/`, `logs/`, `faults/` and `gpu/` with files of these repositories; a part that is not there
is left out:

"""
LIMITS = """\
## What these numbers do not show

- None of these records is of RL post-training with faults that were labelled: no public one
  is. They show whether the rules keep quiet over real fluctuations, and whether real logs are read.
- Only what is in a record can contradict a rule. The series have neither steps nor processes, the
  step times neither memory nor logs.
- Step times are of shared GPUs in 2020, replayed at other lengths of a step: the fluctuation is
  real, its length is not.
- A rank that is slow for less than a quarter of an hour at a time may not be named, as worker 6 of
  job 1: at ten seconds a step, it is slow for twelve and for nine minutes, ninety seconds apart.
"""
NOWHERE = (
    "no traces: TRACES names no folder with steps/, ranks/, series/, logs/, faults/ or gpu/; "
    "docs/traces.md says which repositories they come from"
)


def parts(folder: Path, workers: int) -> list[Result]:
    """The tables of what is there."""
    found: list[Result] = []
    if sequences := steps.read(folder):
        found.append(steps.table(sequences, [steps.replay(sequences, n) for n in steps.LENGTHS]))
    if jobs := ranks.read(folder):
        promtool = find_binaries().promtool
        found.append(ranks.table(ranks.replay_all(jobs, promtool, workers)))
    if recorded := series.read(folder):
        played = tuple(series.replay(recorded, find_binaries().promtool, workers))
        found += [series_page.table(played), series_page.orders(played)]
    if paths := sorted(path for path in folder.glob(logs.FILES) if path.is_file()):
        found.append(logs.table(paths))
    found += [faults.table(faults.read(path, SERVERS)) for path in folder.glob(faults.FILES)]
    if files := sorted(folder.glob(captures.FILES)):
        found.append(captures.table([captures.compare(captures.read(path)) for path in files]))
    return found


def page(tables: Sequence[Result]) -> str:
    body = "\n".join(table.page() for table in tables)
    return f"{HEAD}{SOURCES}\n{body}\n{LIMITS}"


def main() -> int:
    """2 without traces."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("TRACES") or "."))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only-print", action="store_true", help="leave docs/traces.md alone")
    options = parser.parse_args()
    tables = parts(options.folder, options.processes)
    if not tables:
        print(NOWHERE, file=sys.stderr)
        return 2
    if options.only_print:
        print(page(tables))
    else:
        PAGE.write_text(page(tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
