"""Real processes that hang, or only look so, judged by the exporter's own sampler.

.venv-real/bin/python bench/hangs.py --hangs 500 --healthy 200    # writes docs/hangs.md

Needs PyTorch in the Python that runs it. The ranks are processes of gloo on the CPU, with a step a
second; a trial ends when the sampler has confirmed its verdict, or after LONGEST seconds.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import hung_ranks
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_exporter.processes.stacks.model import Diagnosis, Member
from trainwarden_exporter.processes.stacks.sampler import LOOK_SECONDS, RunSampler

PAGE = Path(__file__).resolve().parents[1] / "docs" / "hangs.md"
SUSPICION = 24.0
"""Seconds of silence from which the exporter is suspicious where steps are seconds."""

LONGEST = 150.0
KEY = WorkerKey("hangs", "trainer")


@dataclass(frozen=True)
class Outcome:
    kind: str
    ranks: int
    stuck: float | None
    """Seconds from the suspicion to the verdict; None if it never came."""
    confirmed: float | None
    named: bool
    chain: str


def members(ranks: Sequence[BaseProcess]) -> tuple[Member, ...]:
    """The ranks and their children, as the exporter would find them."""
    table = read_processes()
    found = []
    for rank, process in enumerate(ranks):
        pid = process.pid or 0
        below = descendants(table, [pid])
        for one in (pid, *sorted(below)):
            entry = table.get(one)
            if entry is None or not entry.alive:
                continue
            is_rank = one == pid
            found.append(
                Member(
                    KEY, "trainer", entry.identity, entry.parent_pid, entry.threads,
                    rank=rank if is_rank else None, world=len(ranks), local_world=len(ranks),
                    is_trainer=is_rank,
                )
            )  # fmt: skip
    return tuple(found)


@contextmanager
def running(kind: str, count: int, odd: int, folder: Path) -> Iterator[list[BaseProcess]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hung_ranks"])
    helper = hung_ranks.start_helper(context, kind, folder)
    ranks: list[BaseProcess] = [
        context.Process(target=hung_ranks.rank, args=(kind, rank, count, odd, str(folder)))
        for rank in range(count)
    ]
    try:
        for process in ranks:
            process.start()
        yield ranks
    finally:
        for process in (*ranks, *helper):
            if process.pid is not None:
                for pid in descendants(read_processes(), [process.pid]):
                    hung_ranks.end(pid)
                process.kill()
                process.join()


def trial(kind: str, seed: int) -> Outcome:
    """One trial; raises TimeoutError if its ranks never begin."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    count = rng.choice((2, 3, 4))
    odd = 0 if kind == "update" else rng.randrange(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(kind, count, odd, folder) as ranks:
            _wait((folder / "struck").exists, 300)
            struck = (folder / "struck").stat().st_mtime
            time.sleep(max(0.0, struck + SUSPICION + rng.uniform(0, LOOK_SECONDS) - time.time()))
            return _judge(kind, ranks, odd, struck + SUSPICION)


def _judge(kind: str, ranks: Sequence[BaseProcess], odd: int, suspicion: float) -> Outcome:
    sampler, stuck, confirmed = RunSampler(), None, None
    diagnosis: Diagnosis | None = None
    while time.time() < suspicion + LONGEST - SUSPICION and confirmed is None:
        began = time.time()
        diagnosis = sampler.look(suspicion, members(ranks))
        if diagnosis.movement == "stuck":
            stuck = stuck or time.time() - suspicion
            confirmed = time.time() - suspicion if diagnosis.confirmed else None
        time.sleep(max(0.0, began + LOOK_SECONDS - time.time()))
    chain = "" if diagnosis is None else diagnosis.chain
    return Outcome(kind, len(ranks), stuck, confirmed, _is_named(kind, odd, diagnosis), chain)


def _is_named(kind: str, odd: int, diagnosis: Diagnosis | None) -> bool:
    """Whether the guilty rank, or what it waits for, is what the sampler names."""
    if diagnosis is None or not diagnosis.suspects:
        return False
    (suspect, *more) = diagnosis.suspects
    named = suspect.rank == odd or (
        suspect.finding is not None and suspect.rank is None and f"rank {odd} " in diagnosis.chain
    )
    ends = hung_ranks.FAR_END.get(kind, "")
    return named and not more and ends in diagnosis.chain


def _wait(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)


def bounds(hits: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson, 1934)."""

    def tail(share: float, least: int) -> float:
        return sum(
            math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(least, of + 1)
        )

    def solve(least: int, probability: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, least) < probability else (low, middle)
        return low

    lower = 0.0 if hits == 0 else solve(hits, 0.025)
    return lower, 1.0 if hits == of else solve(hits + 1, 0.975)


def _share(hits: int, of: int) -> str:
    low, high = bounds(hits, of)
    return f"{hits} of {of} ({100 * low:.1f}–{100 * high:.1f} %)"  # noqa: RUF001 - a range


def page(outcomes: Sequence[Outcome]) -> str:
    """The page, of trials that have ended."""
    hangs = [one for one in outcomes if one.kind in hung_ranks.HANGS]
    healthy = [one for one in outcomes if one.kind in hung_ranks.HEALTHY]
    lines = [TEXT, "| hang | trials | stuck | guilty process named | median s | most s |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for kind, text in (*hung_ranks.HANGS.items(), ("", "**all**")):
        rows = [one for one in hangs if kind in ("", one.kind)]
        times = [one.stuck for one in rows if one.stuck is not None]
        if rows:
            lines.append(
                f"| {text} | {len(rows)} | {_share(len(times), len(rows))} |"
                f" {_share(sum(one.named for one in rows), len(rows))} |"
                + (f" {statistics.median(times):.0f} | {max(times):.0f} |" if times else " – | – |")  # noqa: RUF001
            )
    times = sorted(one.stuck for one in hangs if one.stuck is not None)
    if times:
        p95 = times[math.ceil(0.95 * len(times)) - 1]
        lines += [
            "",
            f"95 % of the verdicts came within {p95:.0f} s of the suspicion, which begins",
        ]
        lines.append(
            f"{SUSPICION:.0f} s after the last step: {p95 + SUSPICION:.0f} s from the fault."
        )
    lines += ["", "| healthy silence | trials | found stuck | would be restarted |"]
    lines.append("|---|--:|--:|--:|")
    for kind, text in (*hung_ranks.HEALTHY.items(), ("", "**all**")):
        rows = [one for one in healthy if kind in ("", one.kind)]
        if rows:
            stuck = sum(one.stuck is not None for one in rows)
            restarted = sum(one.confirmed is not None for one in rows)
            lines.append(
                f"| {text} | {len(rows)} | {_share(stuck, len(rows))} |"
                f" {_share(restarted, len(rows))} |"
            )
    return "\n".join(lines) + "\n"


TEXT = """# Hangs

Written by `bench/hangs.py`: ranks of PyTorch's gloo on the CPU that make a step a second, until one
waits for ever, or all do something that takes long. The exporter's own sampler looks at them as it
does in a silence of a run: from two fifths of the stall limit on (24 s), every 5 s, with rounds of
three stacks a minute apart. In parentheses the 95 % interval of the share.

*Stuck* is the verdict after the first round; a restart needs a second round with the same stacks.
*Named* means that the guilty rank, and what it waits for, are the only ones that
`trainwarden_stack_suspect` and the chain name.

Not measured: NCCL, a mount that hangs (state D is never *stuck*, by design), more than four ranks.
"""


def main() -> int:
    """Runs the trials; 1 if a healthy silence would be restarted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hangs", type=int, default=500)
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-print", action="store_true")
    options = parser.parse_args()
    kinds = [tuple(hung_ranks.HANGS)[at % len(hung_ranks.HANGS)] for at in range(options.hangs)]
    kinds += [
        tuple(hung_ranks.HEALTHY)[at % len(hung_ranks.HEALTHY)] for at in range(options.healthy)
    ]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(options.together) as pool:
        waited = [
            pool.submit(trial, kind, options.seed * 1_000_000 + at) for at, kind in enumerate(kinds)
        ]
        for one in waited:
            try:
                outcomes.append(one.result())
            except TimeoutError:
                print("a trial never began", file=sys.stderr)
                continue
            print(outcomes[-1], file=sys.stderr, flush=True)
    text = page(outcomes)
    if options.only_print:
        print(text)
    else:
        PAGE.write_text(text)
    return int(any(one.confirmed for one in outcomes if one.kind in hung_ranks.HEALTHY))


if __name__ == "__main__":
    sys.exit(main())
