"""The demo's inference server: answers like a small vLLM, and shows metrics in vLLM's shape."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from program import Program, arguments
from simulated import GIB, hold_gpu

MODEL = "demo"
ANSWER_SECONDS = 0.05
WRONG_SHARE = 0.3
DEVICE, DEVICE_MEMORY = 0, 9 * GIB


class Engine:
    """Completes prompts and counts what it does."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._lock = threading.Lock()
        self.running = 0
        self.finished = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0

    def complete(self, prompt: str) -> dict[str, Any]:
        """The completion of `prompt`, as vLLM's API gives it; never comes while stalled."""
        with self._lock:
            self.running += 1
            self.prompt_tokens += len(prompt.split())
        try:
            time.sleep(ANSWER_SECONDS)
            while self._program.stalled:
                time.sleep(1)
            text = answer(prompt)
        finally:
            with self._lock:
                self.running -= 1
        with self._lock:
            self.finished += 1
            self.generation_tokens += len(text.split())
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        return {"object": "text_completion", "model": MODEL, "choices": [choice]}

    def metrics(self) -> str:
        """Prometheus text under the names and labels that vLLM 0.32 uses."""
        labels = f'engine="0",model_name="{MODEL}"'
        series = (
            ("num_requests_running", "gauge", labels, self.running),
            ("num_requests_waiting", "gauge", labels, 0),
            ("kv_cache_usage_perc", "gauge", labels, min(1.0, self.running / 10)),
            ("prompt_tokens_total", "counter", labels, self.prompt_tokens),
            ("generation_tokens_total", "counter", labels, self.generation_tokens),
            ("request_success_total", "counter", f'{labels},finished_reason="stop"', self.finished),
        )
        return "".join(
            f"# HELP vllm:{name} As vLLM has it.\n# TYPE vllm:{name} {kind}\n"
            f"vllm:{name}{{{pairs}}} {value:.1f}\n"
            for name, kind, pairs, value in series
        )


def answer(prompt: str) -> str:
    """The sum asked for; wrong now and then, as a policy in training is."""
    total = sum(int(number) for number in re.findall(r"\d+", prompt))
    wrong = random.random() < WRONG_SHARE  # noqa: S311 - dice, not a secret
    return f" {total + wrong}"


class Handler(BaseHTTPRequestHandler):
    """The few paths of vLLM's server that the demo needs."""

    server: InferenceServer

    def do_GET(self) -> None:
        match self.path:
            case "/health":
                self._reply(HTTPStatus.OK, "text/plain", "")
            case "/v1/models":
                models = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
                self._reply(HTTPStatus.OK, "application/json", json.dumps(models))
            case "/metrics":
                self._reply(
                    HTTPStatus.OK, "text/plain; version=0.0.4", self.server.engine.metrics()
                )
            case _:
                self._reply(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", "0"))
            prompt = str(json.loads(self.rfile.read(length))["prompt"])
        except (ValueError, KeyError, TypeError):
            self._reply(HTTPStatus.BAD_REQUEST, "text/plain", "a JSON body with a prompt, please\n")
            return
        if self.path != "/v1/completions":
            self._reply(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")
            return
        completion = self.server.engine.complete(prompt)
        self._reply(HTTPStatus.OK, "application/json", json.dumps(completion))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Say nothing: one line per request would bury the rest."""

    def _reply(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class InferenceServer(ThreadingHTTPServer):
    """Serves one engine on loopback."""

    daemon_threads = True
    block_on_close = False
    timeout = 0.2

    def __init__(self, port: int, engine: Engine) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.engine = engine

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that went away in the middle of an answer is no news."""


def main() -> None:
    """Serve until stopped."""
    parser = arguments(__doc__)
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    options = parser.parse_args()
    program = Program(options.name, options.folder)
    hold_gpu(options.folder, DEVICE, DEVICE_MEMORY)
    with InferenceServer(options.port, Engine(program)) as server:
        program.log(f"serving model {MODEL} on port {options.port}")
        while not program.stopping:
            program.tick()  # here, and not in a thread: a hang then holds up every new request
            server.handle_request()


if __name__ == "__main__":
    main()
