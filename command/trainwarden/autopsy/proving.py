"""Reads the newest checkpoints, so that no damaged one is called good."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from trainwarden.autopsy.case import Case
from trainwarden.autopsy.gather import after_end
from trainwarden.autopsy.material import CheckpointFinding
from trainwarden_exporter.checkpoints.last_finite import LastFinite
from trainwarden_exporter.checkpoints.paced_reader import UnlimitedRate
from trainwarden_exporter.checkpoints.prover import CheckpointProver, open_proofs

PROOF_SECONDS = 15.0
"""How long checkpoints are read. The prover reads 8 GiB of each at most."""


def with_proofs(case: Case, *, clock: Callable[[], float] = time.monotonic) -> Case:
    """Returns `case` with proofs of the checkpoints from which a resume may begin.

    The newest are read, and as long as they are damaged, those before. No pickle is loaded.
    """
    if (found := case.checkpoint) is None:
        return case
    end, state = clock() + PROOF_SECONDS, open_proofs(None, found.spec)
    last, snapshot = case.finite_until, found.snapshot
    while (left := end - clock()) > 0:
        prover = CheckpointProver(
            found.spec,
            lambda: snapshot,
            state=state,
            rate=UnlimitedRate(),
            last_finite=None if last is None else LastFinite(last),
            now=after_end,
            clock=clock,
        )
        case = _with(case, found, replace(found, proofs=prover.prove_all(left)))
        found, resume = case.checkpoint or found, case.resume
        good = None if resume is None else resume.checkpoint
        step = None if good is None else found.step(good)
        if resume is None or resume.state != "unproved" or step in (None, last):
            break
        last = step  # the newest are damaged, and this one was not read yet
    return case


def _with(case: Case, before: CheckpointFinding, found: CheckpointFinding) -> Case:
    kinds = (found if one is before else one for one in case.material.checkpoints)
    return Case(replace(case.material, checkpoints=tuple(kinds)))
