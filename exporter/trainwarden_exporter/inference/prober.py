"""Probes one server in rounds, and requests a completion when one is due."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from trainwarden_exporter.inference.engine_stats import Completion, EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import InferenceEngine, ProbeStage
from trainwarden_exporter.inference.health import assess_health, has_progressed
from trainwarden_exporter.inference.health_model import (
    UP,
    CompletionProbe,
    HealthLimits,
    HealthReason,
    HealthState,
    ProbeResult,
    ProcessInfo,
)
from trainwarden_exporter.inference.http_client import ProbeClient, Send
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse
from trainwarden_exporter.inference.process_activity import ProcessActivity
from trainwarden_exporter.inference.target import CompletionResult, ServerHealth, ServerTarget

log = logging.getLogger(__name__)

RARE_INTERVAL = 30.0
"""Seconds between two requests for models and weights."""

ABSENT_RETRY_SECONDS = 300.0
"""Seconds after which a missing endpoint is requested again."""

STOPPED_POLL_SECONDS = 2.0
"""Seconds between two looks whether the process of a server that has not answered yet is stopped;
after two, the probe ends."""

_NO_URL = HttpResponse(HttpOutcome.REFUSED, detail="its worker is not running or has no open port")


class Prober:
    """The probe rounds of one server. All methods belong to one event loop.

    `process`, `activity` and `logged_update` are called in each round and must not block: they
    return the server's process, what its processes do, and the start (Unix seconds) of a weight
    update in progress according to the log.
    """

    def __init__(
        self,
        target: ServerTarget,
        engine: InferenceEngine,
        client: ProbeClient,
        *,
        limits: HealthLimits | None = None,
        process: Callable[[ServerTarget], ProcessInfo | None] = lambda _: None,
        activity: Callable[[ServerTarget], ProcessActivity | None] = lambda _: None,
        logged_update: Callable[[str], float | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.target = target
        self.health: ServerHealth | None = None
        self._engine = engine
        self._client = client
        limits = target.limits if limits is None else limits
        configured = target.config.deep_probe.enabled
        self._limits = replace(
            limits,
            probes_completions=engine.probes_completions if configured is None else configured,
        )
        self._process = process
        self._activity = activity
        self._weight_update_started = logged_update
        self._clock = clock
        self._now = now
        self._state = HealthState()
        self._cached: dict[str, tuple[HttpResponse, float]] = {}
        self._rare_stats = EngineStats()
        self._rare_due = 0.0
        self._completion_task: asyncio.Task[None] | None = None
        self._completion_probe: CompletionProbe | None = None
        self._completion_result: CompletionResult | None = None
        self._probes = 0

    async def run(self, delay: float = 0.0) -> None:
        """Probes in rounds until cancelled, starting after `delay` seconds."""
        try:
            await asyncio.sleep(delay)
            while True:
                began = self._clock()
                await self._probe_safely()
                await asyncio.sleep(max(0.0, began + self.target.config.interval - self._clock()))
        finally:
            await self.stop()

    async def stop(self) -> None:
        if (completion := self._completion_task) is not None:
            completion.cancel()
            await asyncio.wait([completion])

    async def probe_once(self) -> None:
        """Runs one round: probes, assesses, and requests a completion if due."""
        began, timestamp = self._clock(), self._now()
        activity = self._activity(self.target)
        responses: dict[str, HttpResponse] = {}
        stats = EngineStats()
        if self.target.url is None:
            responses["liveness"] = _NO_URL
        else:
            async with self._client.connect() as send:
                responses["liveness"] = (
                    await self._send(send, self._engine.liveness_request)
                    if activity is None
                    else await self._send_liveness(send)
                )
                if self._engine.parse_liveness(responses["liveness"]) is Liveness.SERVING:
                    stats = await self._collect_stats(send, responses, began)
        liveness = self._engine.parse_liveness(responses["liveness"])
        if liveness is not Liveness.SERVING:
            # The earlier responses may be those of a previous server.
            self._cached.clear()
            self._rare_stats = EngineStats()
            self._completion_result = None
            self._rare_due = 0.0
        self._assess(liveness, responses["liveness"], stats, timestamp, (activity, began))

    async def _send_liveness(self, send: Send) -> HttpResponse:
        """Requests the liveness; does not wait for the answer of a stopped process."""
        began = self._clock()
        request = asyncio.ensure_future(self._send(send, self._engine.liveness_request))
        looks = 0
        try:
            while not (await asyncio.wait({request}, timeout=STOPPED_POLL_SECONDS))[0]:
                activity = self._activity(self.target)
                looks = looks + 1 if activity is not None and activity.stopped else 0
                if looks > 1:
                    seconds = self._clock() - began
                    detail = "a process of the server is stopped"
                    return HttpResponse(HttpOutcome.SILENT, seconds=seconds, detail=detail)
            return request.result()
        finally:
            request.cancel()

    async def _probe_safely(self) -> None:
        try:
            await self.probe_once()
        except Exception:
            # A dead prober would show its last result forever.
            log.exception("inference probe failed", extra=self._log_fields())

    async def _collect_stats(
        self, send: Send, responses: dict[str, HttpResponse], now: float
    ) -> EngineStats:
        """Requests further statistics of a serving server, as far as needed."""
        await self._send_all(send, ProbeStage.PASSIVE, responses, now)
        stats = self._engine.parse_stats(responses)
        is_explained = stats.updating or stats.sleeping
        if not is_explained and not has_progressed(stats, self._state):
            await self._send_all(send, ProbeStage.NO_PROGRESS, responses, now)
            stats = self._engine.parse_stats(responses)
        # Some rarely changing values come from the engine's loop, which must not be burdened.
        if now >= self._rare_due and not (is_explained or self._failed):
            self._rare_due = now + RARE_INTERVAL
            await self._send_all(send, ProbeStage.RARE, responses, now)
            stats = self._engine.parse_stats(responses)
        return stats

    @property
    def _failed(self) -> bool:
        latest = self._completion_probe
        just_failed = latest is not None and latest.outcome is Completion.FAILED
        return just_failed or self._state.completion_failures > 0

    async def _send_all(
        self, send: Send, stage: ProbeStage, responses: dict[str, HttpResponse], now: float
    ) -> None:
        """Sends the engine's requests of `stage` until there are no more."""
        known = -1
        while known != len(responses):
            known = len(responses)
            for request in self._engine.requests(stage, responses, failed=self._failed):
                if request.name not in responses:
                    responses[request.name] = await self._send_or_reuse(send, request, now)

    async def _send_or_reuse(self, send: Send, request: HttpRequest, now: float) -> HttpResponse:
        """Sends a request, or returns the previous response.

        Missing endpoints are requested rarely, and unanswered ones no more often than completions,
        because requests may accumulate in a hung server.
        """
        cached = self._cached.get(request.name)
        if cached is not None and now < cached[1]:
            return cached[0]
        response = await self._send(send, request)
        self._cached.pop(request.name, None)
        if response.is_unknown_endpoint:
            self._cached[request.name] = (response, now + ABSENT_RETRY_SECONDS)
        elif not response.answered:
            self._cached[request.name] = (response, now + self._limits.completion_interval)
        return response

    async def _send(self, send: Send, request: HttpRequest) -> HttpResponse:
        return await send(self._engine.url_of(request), request)

    def _assess(
        self,
        liveness: Liveness,
        response: HttpResponse,
        stats: EngineStats,
        timestamp: float,
        look_before: tuple[ProcessActivity | None, float],
    ) -> None:
        before, now = self.health, self._clock()
        update_started = self._weight_update_started(self.target.run)
        completion, self._completion_probe = self._completion_probe, None
        activity = self._activity(self.target) if liveness is Liveness.SILENT else None
        activity_before, began = look_before
        at_work = idle = False
        if activity is not None and activity_before is not None:
            worked = activity.has_worked_since(activity_before, now - began)
            at_work = worked and not self._engine.answers_while_busy
            idle = not at_work and activity.is_idle_since(activity_before)
        assessment = assess_health(
            ProbeResult(
                liveness,
                stats,
                process=self._process(self.target),
                completion=completion,
                completion_pending=self._completion_task is not None,
                stopped=activity is not None and activity.stopped,
                idle=idle,
                at_work=at_work,
                logged_update=None if update_started is None else self._now() - update_started,
            ),
            self._state,
            now,
            self._limits,
        )
        worked = assessment.state.last_progress_at not in (None, self._state.last_progress_at)
        worked_before = before.progress_timestamp if before else None
        self._state = assessment.state
        self._probes += 1
        changed = before is None or before.reason is not assessment.reason
        stats, version_timestamp = self._with_rare_stats(stats, timestamp)
        self.health = ServerHealth(
            state=assessment.state,
            up=assessment.up,
            timestamp=timestamp,
            reason_timestamp=timestamp if changed or before is None else before.reason_timestamp,
            status=response.status if response.answered else None,
            seconds=response.seconds,
            detail=response.detail,
            stats=stats,
            progress_timestamp=timestamp if worked else worked_before,
            version_timestamp=version_timestamp,
            last_completion=self._completion_result,
            probes=self._probes,
        )
        if changed:
            self._log_change(before, self.health)
        if assessment.completion_rank is not None:
            self._start_completion(assessment.completion_rank)

    def _with_rare_stats(
        self, stats: EngineStats, timestamp: float
    ) -> tuple[EngineStats, float | None]:
        """Returns `stats` with values from earlier rounds and the time of the weight version."""
        before = self.health
        since = before.version_timestamp if before else None
        version = stats.weight_version or self._rare_stats.weight_version
        known = before.stats.weight_version if before else None
        if version is None:
            since = None
        elif version != known or since is None:
            since = timestamp
        models = stats.models if stats.models is not None else self._rare_stats.models
        self._rare_stats = EngineStats(models=models, weight_version=version)
        return replace(stats, models=models, weight_version=version), since

    def _start_completion(self, rank: str) -> None:
        models = self._rare_stats.models or ()
        model = self.target.config.model or next(iter(models), None) or self.target.model
        request = self._engine.completion_request(model, rank)
        if request is None:
            self._completion_probe = CompletionProbe(Completion.IMPOSSIBLE, rank)
            return
        name = f"completion {self.target.server}"
        self._completion_task = asyncio.create_task(self._complete(request, rank), name=name)

    async def _complete(self, request: HttpRequest, rank: str) -> None:
        """Requests one token. Cancellation closes the connection, so that the server may abort."""
        timestamp = self._now()
        completion, response = Completion.FAILED, HttpResponse(HttpOutcome.BROKEN)
        try:
            async with self._client.connect() as send:
                response = await self._send(send, request)
            completion = self._engine.parse_completion(response)
        except Exception:
            log.exception("inference completion failed", extra=self._log_fields())
        finally:
            self._completion_probe = CompletionProbe(completion, rank)
            if completion is not Completion.IMPOSSIBLE:
                self._completion_result = CompletionResult(completion, response.seconds, timestamp)
            self._completion_task = None

    def _log_change(self, before: ServerHealth | None, after: ServerHealth) -> None:
        if before is None and after.reason in (None, HealthReason.OK):
            return
        level = logging.INFO if after.reason in UP or after.reason is None else logging.WARNING
        fields = {
            "reason": after.reason,
            "before": before.reason if before else None,
            "status": after.status,
            "detail": after.detail,
        }
        log.log(level, "inference server changed state", extra={**self._log_fields(), **fields})

    def _log_fields(self) -> dict[str, object]:
        return {
            "run": self.target.run,
            "server": self.target.server,
            "engine": self.target.engine,
            "url": self.target.url,
        }
