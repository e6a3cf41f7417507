"""The inference servers: whether they serve, why not, and how busy they are."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.collector import Collector, Family
from trainwarden_exporter.exceptions import CollectError, NoData
from trainwarden_exporter.inference import metrics
from trainwarden_exporter.inference.asking import HttpAsker
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.keys import KeyFile, Keyring, environment_key, no_key
from trainwarden_exporter.inference.probeloop import FIRST_LOOK, ProbeLoop
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.roster import InferenceRun, Roster
from trainwarden_exporter.inference.target import Target
from trainwarden_exporter.inference.verdict import ProcessFact

log = logging.getLogger(__name__)

ToldUpdate = Callable[[str], float | None]
"""Since when (unix seconds) the log of the run of that name has told of a weight update that goes
on; None for none. It must answer at once."""


class InferenceCollector(Collector):
    """Shows what the probes, which run in a thread of their own, last found."""

    name = "inference"
    metrics = metrics.METRICS

    def __init__(
        self,
        runs: Sequence[InferenceRun],
        *,
        told_update: ToldUpdate = lambda _: None,
        roster: Roster | None = None,
    ) -> None:
        self._any = any(run.inference for run in runs)
        self._roster = roster or Roster(runs)
        self._surroundings = _Surroundings(self._roster, told_update)
        self._probes = ProbeLoop(self._surroundings.build)

    def adopt(self, predecessor: Self) -> None:
        """Go on with the probes of `predecessor`.

        A server that is configured as before keeps all that is known of it.
        """
        self._roster.adopt(predecessor._roster)
        self._probes = predecessor._probes
        surroundings = predecessor._surroundings
        surroundings.roster = self._roster
        surroundings.told_update = self._surroundings.told_update
        self._surroundings = surroundings

    def collect(self) -> Iterable[Family]:
        targets = self._roster.view(patience=FIRST_LOOK).targets if self._any else ()
        self._surroundings.read_keys(targets)
        self._probes.set(targets)
        if not self._any:
            raise NoData("no inference servers are configured")
        sightings = self._probes.seen()
        if not self._probes.alive:
            raise CollectError("the servers are not probed any more")
        families = {metric: metric.family() for metric in self.metrics}
        for target, sighting in sightings.items():
            for metric, labels, value in metrics.server_samples(target, sighting):
                families[metric].add_metric(labels, value)
        return families.values()

    def close(self) -> None:
        """Probe no more."""
        self._roster.close()
        self._probes.close()
        self._surroundings.close()


class _Surroundings:
    """What probers need beside their target, and what may be another one after a reload."""

    def __init__(self, roster: Roster, told_update: ToldUpdate) -> None:
        self.roster = roster
        self.told_update = told_update
        self._key_files: dict[Path, KeyFile] = {}

    def read_keys(self, targets: Iterable[Target]) -> None:
        """Begin to read the files with keys, and wait a little for each that is new."""
        files = (one.config.api_key_file for one in targets)
        wanted = {file for file in files if file is not None}
        for path in self._key_files.keys() - wanted:
            self._key_files.pop(path).close()
        for path in wanted - self._key_files.keys():
            self._key_files[path] = KeyFile(path)
            self._key_files[path].wait()

    def build(self, target: Target) -> Prober:
        """The prober of `target`."""
        engine = build_engine(target.engine, target.config, target.url or "", target.metrics_url)
        asker = HttpAsker(target.config.timeout, self._keyring(target), _context(target))
        return Prober(target, engine, asker, process=self._process, told_update=self._told_update)

    def close(self) -> None:
        for file in self._key_files.values():
            file.close()

    def _keyring(self, target: Target) -> Keyring:
        config = target.config
        if config.api_key_file is not None:
            path = config.api_key_file
            return lambda: file() if (file := self._key_files.get(path)) else None
        return no_key if config.api_key_env is None else environment_key(config.api_key_env)

    def _process(self, target: Target) -> ProcessFact | None:
        return self.roster.process(target)

    def _told_update(self, run: str) -> float | None:
        return self.told_update(run)


def _context(target: Target) -> ssl.SSLContext | None:
    """How a certificate is checked; as is usual where the file for it has been spoilt since."""
    if not target.secured:
        return None
    try:
        return target.config.tls.context()
    except (OSError, ValueError) as error:
        log.warning(
            "CA file not read", extra={"path": target.config.tls.ca_file, "error": str(error)}
        )
        return None
