"""An inference server, and what the exporter's own judgement makes of it.

What the server does is the model's; what it is called is decided by the exporter's `assess_health`,
fed with one result per round as its prober would make it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trainwarden_exporter.inference.engine_stats import (
    ActivityCounter,
    Completion,
    EngineStats,
    Liveness,
)
from trainwarden_exporter.inference.health import assess_health
from trainwarden_exporter.inference.health_model import (
    UP,
    CompletionProbe,
    HealthLimits,
    HealthReason,
    HealthState,
    ProbeResult,
    ProcessInfo,
)
from trainwarden_exporter.inference.metrics import not_ready_limit
from trainwarden_exporter.inference.target import ServerHealth
from verdicts.page import Page
from verdicts.parts import Worker

ROUND = 5.0
SILENT_ROUND = 15.0
"""Seconds that a round without an answer takes."""
TOKEN_TIMEOUT = 20.0

LIVES = {
    "loading": Liveness.REFUSED,
    "down": Liveness.REFUSED,
    "unreachable": Liveness.UNREACHABLE,
    "dead": Liveness.DEAD,
    "status": Liveness.BAD,
    "silent": Liveness.SILENT,
    "unauthorized": Liveness.UNAUTHORIZED,
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
    reason: HealthReason | None = None
    reason_since: float = 0.0
    deep_success: bool | None = None
    _state: HealthState = field(default_factory=HealthState)
    _due: float = -math.inf
    _deep: tuple[float, Completion] | None = None
    """A completion under way: when it ends, and how."""

    @property
    def serves(self) -> bool:
        return self.state == "ok"

    def health(self, world: float, now: float) -> ServerHealth | None:
        """What the exporter keeps of it."""
        if self.reason is None:
            return None
        worked = self._state.last_progress_at
        return ServerHealth(
            self._state,
            self.reason in UP,
            self.seen,
            self.reason_since,
            progress_timestamp=None if worked is None else now - (world - worked),
        )

    def forget(self) -> None:
        """The exporter restarts."""
        self.reason, self._state, self._deep, self.deep_success = None, HealthState(), None, None
        self._due = -math.inf

    def probe(self, world: float, now: float) -> None:
        """The rounds that are due by `world` (monotonic seconds); `now` is the host's clock."""
        if self.blind or world < self._due:
            return
        liveness = LIVES.get(self.state, Liveness.SERVING)
        self._due = world + (SILENT_ROUND if liveness is Liveness.SILENT else ROUND)
        deep = None
        if self._deep is not None and world >= self._deep[0]:
            deep, self._deep = CompletionProbe(self._deep[1]), None
            self.deep_success = deep.outcome is Completion.DONE
        stats = self._reading() if liveness is Liveness.SERVING else EngineStats()
        assessment = assess_health(
            ProbeResult(
                liveness,
                stats,
                process=self._process(now),
                completion=deep,
                completion_pending=bool(self._deep),
            ),
            self._state,
            world,
            HealthLimits(),
        )
        self._state = assessment.state
        if assessment.completion_rank is not None:
            hangs = self.state == "hung"
            took = TOKEN_TIMEOUT if hangs else 1.0
            self._deep = (world + took, Completion.FAILED if hangs else Completion.DONE)
        if assessment.reason is not self.reason:
            self.reason, self.reason_since = assessment.reason, now
        self.seen = now

    def _reading(self) -> EngineStats:
        return EngineStats(
            activity={
                "": ActivityCounter(self.tokens, should_change=self.running + self.waiting > 0)
            },
            paused=self.state == "paused" or None,
            sleeping=self.state == "sleeping" or None,
            updating=self.state == "updating" or None,
        )

    def _process(self, now: float) -> ProcessInfo | None:
        if self.worker is None:
            return None
        if not self.worker.alive:
            return ProcessInfo()
        return ProcessInfo(self.worker.started, max(0.0, now - self.worker.started))

    def put(self, page: Page) -> None:
        labels = (self.run, self.name, self.engine)
        worker = "" if self.worker is None else self.worker.name
        page.put("trainwarden_inference_info", 1, *labels, worker, "inference")
        page.put("trainwarden_inference_start_grace_seconds", HealthLimits().start_grace, *labels)
        page.put("trainwarden_inference_pause_limit_seconds", HealthLimits().pause_limit, *labels)
        if self.reason is None:
            return
        page.put("trainwarden_inference_up", self.reason in UP, *labels)
        for reason in HealthReason:
            page.put("trainwarden_inference_reason", reason is self.reason, *labels, reason)
        if self.reason is not HealthReason.OK:
            reason_labels = (*labels, worker, "inference", self.reason)
            limit = not_ready_limit(self.reason, HealthLimits())
            page.put(
                "trainwarden_inference_not_ready_since_timestamp_seconds",
                self.reason_since,
                *reason_labels,
            )
            page.put("trainwarden_inference_not_ready_limit_seconds", limit, *reason_labels)
        page.put("trainwarden_inference_state_timestamp_seconds", self.reason_since, *labels)
        page.put("trainwarden_inference_seen_timestamp_seconds", self.seen, *labels)
        page.put("trainwarden_inference_deep_probe_success", self.deep_success, *labels)
        if LIVES.get(self.state, Liveness.SERVING) is not Liveness.SERVING:
            return
        page.put("trainwarden_inference_models", self.models, *labels)
        page.put("trainwarden_inference_running_requests", self.running, *labels)
        page.put("trainwarden_inference_generated_tokens_total", self.tokens, *labels)
        page.put("trainwarden_inference_waiting_requests", self.waiting, *labels)
        page.put("trainwarden_inference_kv_cache_usage_ratio", self.kv, *labels)
        page.put("trainwarden_inference_preemptions_total", self.preemptions, *labels)
        page.put("trainwarden_inference_errors_total", self.errors, *labels)
        page.put("trainwarden_inference_weight_version", self.version, *labels)
        page.put(
            "trainwarden_inference_weight_version_timestamp_seconds", self.version_time, *labels
        )
