"""One server that is watched, and what was last seen of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.reading import Completion, Reading
from trainwarden_exporter.inference.verdict import Limits, Reason, State


@dataclass(frozen=True)
class Target:
    """A server: its labels, where it is, and its configuration. Equal ones are one server.

    Where `url` is None, it is not known where it is: its worker does not run, or opens no port.
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
    def secured(self) -> bool:
        """Whether TLS is spoken where it is asked, or where its metrics are."""
        urls = (self.url, self.metrics_url, self.config.metrics_url)
        # In whatever case a scheme is written.
        return any(urlsplit(url).scheme == "https" for url in urls if url is not None)

    @property
    def limits(self) -> Limits:
        """How patient its configuration is."""
        deep = self.config.deep_probe
        return Limits(
            failures=self.config.failures,
            start_grace=self.config.start_grace,
            pause_limit=self.config.pause_limit,
            deep=deep.enabled is not False,
            # One that is still under way when the next is due would be two at once.
            deep_interval=max(deep.interval, deep.timeout),
            deep_failures=deep.failures,
            idle_after=deep.idle_after,
        )


@dataclass(frozen=True, slots=True)
class DeepSighting:
    """The last completion that was asked for: what came of it, after how long (s), and when."""

    completion: Completion
    seconds: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the last round saw of a server, and what it makes of it. Timestamps are unix seconds."""

    state: State
    up: bool | None
    timestamp: float
    """When the round began."""
    reason_timestamp: float
    """Since when the server is as it is."""
    status: int | None = None
    """HTTP status of the first answer."""
    seconds: float | None = None
    """How long the first answer took."""
    detail: str = ""
    """What is wrong, for a person."""
    reading: Reading = field(default_factory=Reading)
    worked_timestamp: float | None = None
    """When it was last seen to get something done."""
    version_timestamp: float | None = None
    """When its weight version was first seen."""
    deep: DeepSighting | None = None
    probes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """Rounds in which it did not serve, by what was found instead."""

    @property
    def reason(self) -> Reason | None:
        return self.state.reason
