"""Interface of an inference engine: the requests that probe it, and the meaning of its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engine_stats import (
    ActivityCounter,
    Completion,
    EngineStats,
    Liveness,
)
from trainwarden_exporter.inference.http_messages import (
    MAX_PAGE_BYTES,
    HttpOutcome,
    HttpRequest,
    HttpResponse,
    HttpResponses,
)
from trainwarden_exporter.inference.metrics_parser import ParsedMetrics, parse_metrics

METRICS = HttpRequest("metrics", "/metrics", limit=MAX_PAGE_BYTES, timeout=None)
MODELS = HttpRequest("models", "/v1/models")

_UNANSWERED = {
    HttpOutcome.REFUSED: Liveness.REFUSED,
    HttpOutcome.SILENT: Liveness.SILENT,
    HttpOutcome.UNREACHABLE: Liveness.UNREACHABLE,
    HttpOutcome.BROKEN: Liveness.BROKEN,
}
_MAX_MODELS = 1000


class ProbeStage(Enum):
    """Stages of a round, after the liveness probe."""

    PASSIVE = auto()
    """In each round in which the server serves."""
    NO_PROGRESS = auto()
    """In a round without observed work, to find the reason."""
    RARE = auto()
    """Occasionally, for values that hardly change."""


class InferenceEngine(ABC):
    """One type of server. Pure: it builds requests and parses responses."""

    name: ClassVar[str]
    liveness_path: ClassVar[str]
    """Path of the first request of each round, which must cost the server nothing."""
    liveness_by_status: ClassVar[Mapping[int, Liveness]] = {}
    """Meaning of HTTP statuses of the liveness probe, if different from the usual one."""
    probes_completions: ClassVar[bool] = True
    """Whether completions are requested by default. Not for routers: a completion proves nothing
    about the servers behind one, which need probes of their own."""
    answers_while_busy: ClassVar[bool] = True
    """Whether the liveness probe is answered while requests are served, by a thread of its own."""
    completion_path: ClassVar[str | None] = "/v1/completions"
    """Default path of completions; None if they require a configured path."""
    own_result: ClassVar[str] = ""
    """Key of the result of a completion by the engine's own API."""
    default_model: ClassVar[str | None] = None
    """Model of a completion if none is known."""
    metric_names: ClassVar[tuple[str, ...]] = ()
    """Metrics that are read from the server's page of metrics."""
    metrics_port: ClassVar[int | None] = None
    """Default port of that page, if different from the port of the API."""
    passive_requests: ClassVar[tuple[HttpRequest, ...]] = (METRICS,)
    rare_requests: ClassVar[tuple[HttpRequest, ...]] = (MODELS,)

    def __init__(self, config: ServerConfig, url: str, metrics_url: str | None = None) -> None:
        self._config = config
        self._url = url
        self._metrics_url = metrics_url or config.metrics_url

    def url_of(self, request: HttpRequest) -> str:
        """Returns the full URL of a request."""
        if request.name != "metrics":
            return self._url + request.path
        if self._metrics_url is not None:
            return self._metrics_url
        if self.metrics_port is None:
            return self._url + request.path
        parts = urlsplit(self._url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # Routers and Triton serve this port without TLS.
        return urlunsplit(("http", f"{host}:{self.metrics_port}", request.path, "", ""))

    @property
    def liveness_request(self) -> HttpRequest:
        return HttpRequest("liveness", self.liveness_path, timeout=None)

    def parse_liveness(self, response: HttpResponse) -> Liveness:
        """Returns the meaning of the response to `liveness_request`."""
        if not response.answered:
            return _UNANSWERED[response.outcome]
        if response.status in self.liveness_by_status:
            return self.liveness_by_status[response.status]
        if response.unauthorized:
            return Liveness.UNAUTHORIZED
        return Liveness.SERVING if response.succeeded else Liveness.BAD

    def requests(
        self, stage: ProbeStage, responses: HttpResponses, *, failed: bool
    ) -> Iterable[HttpRequest]:
        """Returns the requests of `stage`, given `responses`; called until there are no new ones.

        `failed` is whether the last completion failed.
        """
        if stage is ProbeStage.PASSIVE:
            return self.passive_requests
        return self.rare_requests if stage is ProbeStage.RARE else ()

    @abstractmethod
    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        """Returns the statistics in the responses of a round; None for missing or invalid ones."""

    def completion_request(self, model: str | None, rank: str = "") -> HttpRequest | None:
        """Returns the request for one token, from the engine or rank `rank` if it can be chosen.

        None if it is not possible.
        """
        path = self._config.deep_probe.path or self.completion_path
        model = model or self.default_model
        if path is None or model is None:
            return None
        prompt = self._config.deep_probe.prompt
        return self.post(
            path, {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}, rank
        )

    def parse_completion(self, response: HttpResponse) -> Completion:
        """Returns the meaning of the response to `completion_request`."""
        if response.succeeded:
            return Completion.DONE if self.has_token(response.json()) else Completion.FAILED
        if not response.answered:
            return Completion.FAILED
        if b"paused" in response.body[:2000]:
            return Completion.PAUSED
        overloaded = response.status == HTTPStatus.TOO_MANY_REQUESTS
        is_server_fault = (
            response.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not response.is_unknown_endpoint
        )
        return Completion.FAILED if overloaded or is_server_fault else Completion.IMPOSSIBLE

    def has_token(self, body: Any) -> bool:
        """Whether the JSON body of a completion contains a result."""
        return isinstance(body, dict) and bool(body.get("choices") or self.own_result in body)

    def metrics(self, responses: HttpResponses) -> ParsedMetrics:
        """Returns the metrics in `metric_names`; empty if the page is missing."""
        page = responses.get("metrics")
        return parse_metrics(page.body if page and page.succeeded else b"", self.metric_names)

    def post(self, path: str, body: object, rank: str = "") -> HttpRequest:
        """Returns a request for one token; vLLM and SGLang choose the rank by this header."""
        headers = {"X-Data-Parallel-Rank": rank} if rank.isdecimal() else {}
        timeout = self._config.deep_probe.timeout
        return HttpRequest("completion", path, "POST", body, headers, timeout=timeout)


def response_field(responses: HttpResponses, name: str, *keys: str) -> Any:
    """Returns the value below `keys` in the response `name`; None without a successful one."""
    response = responses.get(name)
    return response.field(*keys) if response and response.succeeded else None


def served_models(responses: HttpResponses) -> tuple[str, ...] | None:
    """Returns the names in a response to OpenAI's `/v1/models`; None without a valid one."""
    listed = response_field(responses, "models", "data")
    if not isinstance(listed, list):
        return None
    entries = [entry for entry in listed[:_MAX_MODELS] if isinstance(entry, dict)]
    return tuple(str(entry["id"]) for entry in entries if "id" in entry)


def server_activity(done: float | None, *in_flight: float | None) -> dict[str, ActivityCounter]:
    """Returns the activity of a whole server: `done` should change with requests in flight."""
    if done is None:
        return {}
    busy = sum(count or 0 for count in in_flight) > 0
    return {"": ActivityCounter(done, should_change=busy)}
