"""An inference server, and what the exporter's own judgement makes of it.

What the server does is the model's; what it is called is decided by the exporter's `judge`, fed
with one observation per round as its prober would make it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwarden_exporter.inference.judging import judge
from trainwarden_exporter.inference.metrics import away_limit
from trainwarden_exporter.inference.reading import Beat, Completion, Life, Reading
from trainwarden_exporter.inference.verdict import (
    UP,
    Deep,
    Limits,
    Observation,
    ProcessFact,
    Reason,
    State,
)
from verdicts.page import Page
from verdicts.parts import Worker

ROUND = 5.0
SILENT_ROUND = 15.0
"""Seconds that a round takes in which nothing is answered."""
TOKEN_TIMEOUT = 20.0

LIVES = {
    "loading": Life.REFUSED,
    "down": Life.REFUSED,
    "unreachable": Life.UNREACHABLE,
    "dead": Life.DEAD,
    "status": Life.BAD,
    "silent": Life.SILENT,
    "unauthorized": Life.UNAUTHORIZED,
}
"""What a round finds of a server in a state; in any other it serves."""


@dataclass
class Server:
    """`state` is how it really is; `worker` the process, where exporter.yml names one."""

    run: str
    name: str
    engine: str
    worker: Worker | None
    state: str = "ok"
    running: float = 0.0
    waiting: float = 0.0
    tokens: float = 0.0
    kv: float = 0.4
    preemptions: float = 0.0
    errors: float = 0.0
    models: int = 1
    version: int | None = None
    version_time: float | None = None
    seen: float = 0.0
    stuck: bool = False
    """Whether it takes no new weights."""
    blind: bool = False
    """Whether the exporter's prober no longer gets round to it."""
    reason: Reason | None = None
    reason_since: float = 0.0
    deep_success: bool | None = None
    _state: State = field(default_factory=State)
    _due: float = 0.0
    _deep: tuple[float, Completion] | None = None
    """A completion under way: when it ends, and how."""

    @property
    def serves(self) -> bool:
        return self.state == "ok"

    def forget(self) -> None:
        """The exporter begins anew."""
        self.reason, self._state, self._deep, self.deep_success = None, State(), None, None
        self._due = 0.0

    def probe(self, world: float, now: float) -> None:
        """The rounds that are due by `world` (monotonic seconds); `now` is the box's clock."""
        if self.blind or world < self._due:
            return
        life = LIVES.get(self.state, Life.SERVING)
        self._due = world + (SILENT_ROUND if life is Life.SILENT else ROUND)
        deep = None
        if self._deep is not None and world >= self._deep[0]:
            deep, self._deep = Deep(self._deep[1]), None
            self.deep_success = deep.completion is Completion.DONE
        reading = self._reading() if life is Life.SERVING else Reading()
        verdict = judge(
            Observation(
                life, reading, process=self._process(now), deep=deep, deep_goes_on=bool(self._deep)
            ),
            self._state,
            world,
            Limits(),
        )
        self._state = verdict.state
        if verdict.deep is not None:
            hangs = self.state == "hung"
            took = TOKEN_TIMEOUT if hangs else 1.0
            self._deep = (world + took, Completion.FAILED if hangs else Completion.DONE)
        if verdict.reason is not self.reason:
            self.reason, self.reason_since = verdict.reason, now
        self.seen = now

    def _reading(self) -> Reading:
        return Reading(
            beats={"": Beat(self.tokens, owed=self.running + self.waiting > 0)},
            paused=self.state == "paused" or None,
            asleep=self.state == "sleeping" or None,
            updating=self.state == "updating" or None,
        )

    def _process(self, now: float) -> ProcessFact | None:
        if self.worker is None:
            return None
        if not self.worker.alive:
            return ProcessFact()
        return ProcessFact(self.worker.started, max(0.0, now - self.worker.started))

    def put(self, page: Page) -> None:
        labels = (self.run, self.name, self.engine)
        worker = "" if self.worker is None else self.worker.name
        page.put("trainwarden_inference_info", 1, *labels, worker, "inference")
        page.put("trainwarden_inference_start_grace_seconds", Limits().start_grace, *labels)
        page.put("trainwarden_inference_pause_limit_seconds", Limits().pause_limit, *labels)
        if self.reason is None:
            return
        page.put("trainwarden_inference_up", self.reason in UP, *labels)
        for reason in Reason:
            page.put("trainwarden_inference_reason", reason is self.reason, *labels, reason)
        if self.reason is not Reason.OK:
            how = (*labels, worker, "inference", self.reason)
            limit = away_limit(self.reason, Limits())
            page.put("trainwarden_inference_away_timestamp_seconds", self.reason_since, *how)
            page.put("trainwarden_inference_away_limit_seconds", limit, *how)
        page.put("trainwarden_inference_state_timestamp_seconds", self.reason_since, *labels)
        page.put("trainwarden_inference_seen_timestamp_seconds", self.seen, *labels)
        page.put("trainwarden_inference_deep_probe_success", self.deep_success, *labels)
        if LIVES.get(self.state, Life.SERVING) is not Life.SERVING:
            return
        page.put("trainwarden_inference_models", self.models, *labels)
        page.put("trainwarden_inference_running_requests", self.running, *labels)
        page.put("trainwarden_inference_waiting_requests", self.waiting, *labels)
        page.put("trainwarden_inference_kv_cache_usage_ratio", self.kv, *labels)
        page.put("trainwarden_inference_preemptions_total", self.preemptions, *labels)
        page.put("trainwarden_inference_errors_total", self.errors, *labels)
        page.put("trainwarden_inference_weight_version", self.version, *labels)
        page.put(
            "trainwarden_inference_weight_version_timestamp_seconds", self.version_time, *labels
        )
