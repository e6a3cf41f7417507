"""One layout, on which trials are made."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from damages.inflict import copy, remove
from trainwarden_exporter.checkpoints.paced_reader import UnlimitedRate
from trainwarden_exporter.checkpoints.proofs import ProofSnapshot, tracker_rule
from trainwarden_exporter.checkpoints.prover import CheckpointProver, Records, open_proofs
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.runtime.state_file import StateFile

LATER = 60.0
"""Seconds by which the clock is ahead, so that no trial waits until a checkpoint is quiet."""


class Yard:
    """One layout: a working copy with two checkpoints, restored before each trial."""

    def __init__(self, framework: str, source: Path, folder: Path) -> None:
        self.framework = framework
        self.path = folder / framework
        shutil.copytree(source, self.path)
        given = {"name": framework, "framework": framework, "path": str(self.path)}
        (self.spec, *_) = checkpoint_specs(RunConfig.model_validate(given))
        first = self._prove({}, LATER)[0]
        newest, before, *others = first.checkpoints
        for one in others:
            remove(Path(one.path))
        self.newest = Path(newest.path)
        self.kept = folder / f"{framework}-kept"
        copy(self.newest, self.kept)
        rule = tracker_rule(self.spec.layout.completeness)
        self.tracker = None if rule is None else self.newest.parent / rule.file
        self.tracker_text = "" if self.tracker is None else self.tracker.read_text()
        self.step, self.step_before = newest.step_dir.name.number, before.step_dir.name.number
        self.records = self._prove({}, LATER)[1]
        self.older = {path: one for path, one in self.records.items() if path != newest.path}
        self.slowest = 0.0

    def restore(self) -> None:
        remove(self.newest)
        for leftover in self.newest.parent.glob(f"{self.newest.name}.*"):
            remove(leftover)
        copy(self.kept, self.newest)
        if self.tracker is not None:
            stamp = self.newest.parent.stat().st_mtime
            self.tracker.write_text(self.tracker_text)
            os.utime(self.tracker, (stamp, stamp))

    def prove(self, *, after_proof: bool = False, later: float = LATER) -> ProofSnapshot:
        return self._prove(self.records if after_proof else self.older, later)[0]

    def learn(self) -> None:
        """Proves the restored checkpoint, so that later changes are seen."""
        self.records = self._prove(self.older, LATER)[1]

    def _prove(self, known: Records, later: float) -> tuple[ProofSnapshot, Records]:
        def now() -> float:
            return time.time() + later

        scanner = CheckpointScanner(self.spec, now=now)
        scanned = scanner()
        state = StateFile(None, type(open_proofs(None, self.spec).value), empty=dict(known))
        prover = CheckpointProver(
            self.spec, lambda: scanned, state=state, rate=UnlimitedRate(), now=now
        )
        began = time.perf_counter()
        found = prover.prove_all()
        self.slowest = max(getattr(self, "slowest", 0.0), time.perf_counter() - began)
        return found, dict(state.value)
