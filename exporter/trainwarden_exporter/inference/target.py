"""A probed server, and its last observed health."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engine_stats import Completion, EngineStats
from trainwarden_exporter.inference.health_model import HealthLimits, HealthReason, HealthState


@dataclass(frozen=True)
class ServerTarget:
    """A server: labels, address and configuration. Equal targets are the same server.

    `url` is None while its worker is not running or has no open port.
    """

    run: str
    server: str
    engine: str
    url: str | None
    config: ServerConfig
    metrics_url: str | None = None
    model: str | None = None

    @property
    def labels(self) -> tuple[str, str, str]:
        return (self.run, self.server, self.engine)

    @property
    def uses_tls(self) -> bool:
        """Whether the server or its metrics use TLS."""
        urls = (self.url, self.metrics_url, self.config.metrics_url)
        # schemes are case-insensitive
        return any(urlsplit(url).scheme == "https" for url in urls if url is not None)

    @property
    def limits(self) -> HealthLimits:
        deep = self.config.deep_probe
        return HealthLimits(
            failures=self.config.failures,
            start_grace=self.config.start_grace,
            pause_limit=self.config.pause_limit,
            busy_limit=self.config.busy_limit,
            probes_completions=deep.enabled is not False,
            # At most one completion at a time: it must time out before the next is due.
            completion_interval=max(deep.interval, deep.timeout),
            completion_failures=deep.failures,
            idle_after=deep.idle_after,
        )


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """Last one-token completion: result, duration (seconds) and time."""

    outcome: Completion
    seconds: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """Health of a server after its last round. Times are Unix seconds."""

    state: HealthState
    up: bool | None
    timestamp: float
    """Start of the round."""
    reason_timestamp: float
    """Time since which the reason applies."""
    status: int | None = None
    """HTTP status of the liveness probe."""
    seconds: float | None = None
    """Duration of the liveness probe."""
    detail: str = ""
    """Description of the problem."""
    stats: EngineStats = field(default_factory=EngineStats)
    progress_timestamp: float | None = None
    """Last observed activity."""
    version_timestamp: float | None = None
    """Time at which its weight version was first observed."""
    last_completion: CompletionResult | None = None
    probes: int = 0

    @property
    def reason(self) -> HealthReason | None:
        return self.state.reason
