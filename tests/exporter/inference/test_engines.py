"""Responses as parsed by the engines: recorded pages and garbage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engine_stats import (
    ActivityCounter,
    Completion,
    EngineStats,
    Liveness,
)
from trainwarden_exporter.inference.engines import ENGINES, build_engine
from trainwarden_exporter.inference.engines.base import InferenceEngine, ProbeStage
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse

SAMPLES = Path(__file__).parent / "samples"
URL = "http://server:8000"


def engine(name: str, **settings: Any) -> InferenceEngine:
    config = ServerConfig.model_validate({"name": "a", "engine": name, "url": URL, **settings})
    return build_engine(name, config, URL)


def answered(body: object = b"", status: int = 200) -> HttpResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(HttpOutcome.ANSWERED, status, data)


def sample(name: str) -> HttpResponse:
    return answered((SAMPLES / name).read_bytes())


SILENT = HttpResponse(HttpOutcome.SILENT)


@pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("contact", "liveness"),
    [
        (HttpOutcome.REFUSED, Liveness.REFUSED),
        (HttpOutcome.SILENT, Liveness.SILENT),
        (HttpOutcome.BROKEN, Liveness.BROKEN),
        (HttpOutcome.UNREACHABLE, Liveness.UNREACHABLE),
    ],
)
def test_a_missing_response_means_the_same_for_all_engines(
    kind: type[InferenceEngine], contact: HttpOutcome, liveness: Liveness
) -> None:
    assert engine(kind.name).parse_liveness(HttpResponse(contact)) is liveness


@pytest.mark.parametrize(
    ("name", "answer", "liveness"),
    [
        ("vllm", answered(), Liveness.SERVING),
        ("vllm", answered(status=503), Liveness.DEAD),
        ("vllm", answered(b"Internal Server Error", 500), Liveness.DEAD),
        ("vllm", answered({"error": "The model is currently scaling."}, 503), Liveness.BAD),
        ("vllm", answered(b"<html>no upstream</html>", 502), Liveness.BAD),
        ("vllm", answered(status=307), Liveness.BAD),
        ("vllm", answered(status=401), Liveness.UNAUTHORIZED),
        ("sglang", answered(), Liveness.SERVING),
        ("sglang", answered(status=503), Liveness.SERVING),
        ("sglang", answered(status=404), Liveness.SERVING),
        ("sglang", answered(status=500), Liveness.BAD),
        ("tgi", answered({"error": "unhealthy"}, 503), Liveness.BAD),
        ("llama_cpp", answered({"error": {"message": "Loading model"}}, 503), Liveness.LOADING),
        ("llama_cpp", answered({"error": {"message": "no slot"}}, 503), Liveness.BAD),
        ("triton", answered(status=400), Liveness.NOT_READY),
        ("sglang_router", answered(status=503), Liveness.NOT_READY),
        ("vllm_router", answered(status=503), Liveness.NOT_READY),
        ("generic", answered(status=403), Liveness.UNAUTHORIZED),
    ],
)
def test_the_meaning_of_a_liveness_response(
    name: str, answer: HttpResponse, liveness: Liveness
) -> None:
    assert engine(name).parse_liveness(answer) is liveness


@pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "answer",
    [
        *(
            answered(b""),
            answered(b"\xff\xfe"),
            answered(b"[" * 100_000),
            answered(b"null"),
            answered([]),
            answered([[1]]),
        ),
        *(
            answered({"data": 3}),
            answered({"data": [1, None, {"id": None}]}),
            answered({"loads": [None, {}]}),
        ),
        *(
            answered({"loads": [{"timestamp": "x"}]}),
            answered({"is_paused": "yes"}),
            answered(b"1" * 5000),
        ),
        *(answered({"server_load": "many"}), answered(status=500), answered(status=204), SILENT),
    ],
)
def test_garbage_yields_no_statistics(kind: type[InferenceEngine], answer: HttpResponse) -> None:
    names = (
        "liveness",
        "metrics",
        "models",
        "paused",
        "asleep",
        "load",
        "loads",
        "weights",
        "model",
    )
    stats = engine(kind.name).parse_stats(dict.fromkeys(names, answer))
    assert stats.activity == {}
    assert stats.running is None
    assert stats.kv_usage is None
    assert not stats.updating
    assert stats.sleeping is None


def test_vllm_after_traffic() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_idle_after_traffic.txt")
    stats = engine("vllm").parse_stats({"metrics": page})
    assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0)
    assert stats.generated_tokens is not None
    assert stats.generated_tokens > 0
    assert stats.models == ("tiny",)
    assert stats.sleeping is False
    assert stats.updating is None, "there was no update"
    assert not stats.activity["0"].should_change


def test_vllm_with_a_worker_that_hangs() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_worker_hung.txt")
    stats = engine("vllm").parse_stats({"metrics": page})
    assert stats.running == 1
    assert stats.activity["0"].should_change
    assert stats.updating is False


def test_vllm_with_a_dead_engine_does_not_show_it_in_its_metrics() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_engine_dead_keepalive.txt")
    stats = engine("vllm").parse_stats({"metrics": page})
    assert stats == EngineStats(
        activity={"0": ActivityCounter(855 + 1254 + 20 + 4, should_change=False)},
        running=0,
        waiting=0,
        kv_usage=0,
        generated_tokens=1254,
        prompt_tokens=20,
        preemptions=0,
        errors=0,
        aborts=0,
        rejections=3,
        models=("tiny",),
        sleeping=False,
    )


def test_old_vllm_has_old_metric_names() -> None:
    page = answered(
        b'vllm:num_requests_running{model_name="m"} 2.0\n'
        b'vllm:num_requests_swapped{model_name="m"} 1.0\n'
        b'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'
        b'vllm:generation_tokens_total{model_name="m"} 9.0\n'
    )
    stats = engine("vllm").parse_stats({"metrics": page})
    assert (stats.running, stats.kv_usage) == (2, 0.25)
    assert stats.activity == {"": ActivityCounter(9, should_change=True)}


def test_vllm_with_several_engines_has_an_activity_counter_for_each() -> None:
    page = answered(
        b'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 0\n'
        b'vllm:num_requests_waiting{engine="0"} 0\nvllm:num_requests_waiting{engine="1"} 3\n'
        b'vllm:num_requests_running{engine="2"} 0\nvllm:num_requests_waiting{engine="2"} 0\n'
        b'vllm:generation_tokens_total{engine="0"} 5\n'
        b'vllm:generation_tokens_total{engine="1"} 6\n'
        b'vllm:generation_tokens_total{engine="2"} 7\n'
        b'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
    )
    stats = engine("vllm").parse_stats({"metrics": page})
    assert stats.activity == {
        "0": ActivityCounter(5, should_change=True),
        "1": ActivityCounter(6, should_change=True),
        "2": ActivityCounter(7, should_change=False),
    }
    assert (stats.running, stats.waiting, stats.kv_usage) == (2, 3, 0.9)
    assert stats.generated_tokens == 18


def test_the_load_of_vllm_shows_requests_that_no_gauge_shows() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_idle_after_traffic.txt")
    stats = engine("vllm").parse_stats({"metrics": page, "load": answered({"server_load": 3})})
    assert stats.activity["0"].should_change


@pytest.mark.parametrize(
    ("answers", "paused", "asleep", "loop_alive"),
    [
        ({"paused": answered({"is_paused": True})}, True, None, None),
        ({"paused": answered({"is_paused": False})}, False, None, None),
        ({"paused": answered(status=404)}, None, None, None),
        (
            {"paused": answered(status=404), "asleep": answered({"is_sleeping": True})},
            None,
            True,
            None,
        ),
        ({"paused": SILENT}, None, None, False),
    ],
)
def test_vllm_in_development_mode_reports_a_pause(
    answers: dict[str, HttpResponse],
    paused: bool | None,
    asleep: bool | None,
    loop_alive: bool | None,
) -> None:
    stats = engine("vllm").parse_stats(answers)
    assert (stats.paused, stats.sleeping, stats.loop_alive) == (paused, asleep, loop_alive)


@pytest.mark.parametrize(
    ("answers", "paused", "unready", "loop_alive"),
    [
        ({"liveness": answered()}, False, False, None),
        ({"liveness": answered(status=404)}, None, False, None),
        ({"liveness": answered(status=503), "ping": answered()}, True, True, None),
        ({"liveness": answered(status=503), "ping": answered(status=503)}, None, True, None),
        ({"liveness": answered(status=503), "ping": answered(status=401)}, True, True, None),
        (
            {
                "liveness": answered(status=503),
                "ping": answered(status=503),
                "schedulers": answered({}),
            },
            *(True, True, True),
        ),
        (
            {"liveness": answered(status=503), "ping": answered(status=503), "schedulers": SILENT},
            *(False, True, False),
        ),
    ],
)
def test_sglang_in_a_pause_and_in_similar_states(
    answers: dict[str, HttpResponse], paused: bool | None, unready: bool, loop_alive: bool | None
) -> None:
    stats = engine("sglang").parse_stats(answers)
    assert (stats.paused, stats.unready, stats.loop_alive) == (paused, unready, loop_alive)


def test_sglang_by_the_last_report_of_its_schedulers() -> None:
    loads = [
        {"dp_rank": rank, "timestamp": 1.5 + rank, "num_running_reqs": 2, "num_waiting_reqs": 1}
        for rank in (0, 1)
    ]
    stats = engine("sglang").parse_stats({"loads": answered({"timestamp": "…", "loads": loads})})
    assert stats.activity == {
        "0": ActivityCounter(1.5, should_change=True, always_changes=True),
        "1": ActivityCounter(2.5, should_change=True, always_changes=True),
    }
    assert (stats.running, stats.waiting) == (4, 2)


def test_sglang_by_its_metrics() -> None:
    page = answered(
        b'sglang:num_running_reqs{tp_rank="0"} 2\nsglang:num_queue_reqs{tp_rank="0"} 3\n'
        b'sglang:num_grammar_queue_reqs{tp_rank="0"} 1\nsglang:token_usage{tp_rank="0"} 0.5\n'
        b'sglang:generation_tokens_total{model_name="m"} 90\n'
        b'sglang:prompt_tokens_total{model_name="m"} 10\n'
        b'sglang:num_aborted_requests_total{model_name="m"} 4\n'
        b'sglang:http_responses_total{endpoint="/generate",status_code="500",method="POST"} 3\n'
        b'sglang:http_responses_total{endpoint="/generate",status_code="200",method="POST"} 8\n'
        b'sglang:http_responses_total{endpoint="/health",status_code="503",method="GET"} 99\n'
        b'sglang:http_requests_active{endpoint="/update_weights_from_tensor",method="POST"} 1\n'
    )
    stats = engine("sglang").parse_stats({"metrics": page})
    assert (stats.running, stats.waiting, stats.kv_usage) == (2, 4, 0.5)
    assert (stats.generated_tokens, stats.aborts, stats.errors) == (90, 4, 3)
    assert stats.activity == {"": ActivityCounter(100, should_change=True)}
    assert stats.updating is True


def test_the_weights_of_sglang_from_the_new_and_the_old_endpoint() -> None:
    info = answered({"model_path": "m", "weight_version": "step_12"})
    assert engine("sglang").parse_stats({"model": info}).weight_version == "step_12"
    old = {"model": answered(status=404), "old_model": info}
    assert engine("sglang").parse_stats(old).weight_version == "step_12"


def test_llama_cpp_and_the_routers_as_recorded() -> None:
    stats = engine("llama_cpp").parse_stats({"metrics": sample("llama_cpp_server_metrics.txt")})
    assert (stats.generated_tokens, stats.prompt_tokens) == (8, 4)
    assert stats.activity == {"": ActivityCounter(20, should_change=False)}
    stats = engine("sglang_router").parse_stats(
        {"metrics": sample("sglang_router_0.3.2_metrics.txt")}
    )
    assert (stats.backends, stats.healthy_backends, stats.running) == (1, 1, 0)
    stats = engine("vllm_router").parse_stats({"metrics": sample("vllm_router_0.1.17_metrics.txt")})
    assert (stats.backends, stats.healthy_backends, stats.running) == (1, 1, 0)


def test_llama_cpp_without_a_metrics_response_has_a_dead_loop() -> None:
    assert engine("llama_cpp").parse_stats({"metrics": SILENT}).loop_alive is False
    assert engine("llama_cpp").parse_stats({"metrics": answered(status=501)}).loop_alive is None


@pytest.mark.parametrize(
    ("name", "answer", "completion"),
    [
        ("vllm", answered({"choices": [{"text": " 1"}]}), Completion.DONE),
        ("vllm", answered({"choices": []}), Completion.FAILED),
        ("vllm", answered(b"<html>"), Completion.FAILED),
        ("vllm", SILENT, Completion.FAILED),
        ("vllm", HttpResponse(HttpOutcome.REFUSED), Completion.FAILED),
        ("vllm", answered(status=500), Completion.FAILED),
        ("vllm", answered({"error": "too many queued requests"}, 503), Completion.FAILED),
        ("vllm", answered({"error": {"type": "engine_paused"}}, 503), Completion.PAUSED),
        ("vllm", answered(status=401), Completion.IMPOSSIBLE),
        ("vllm", answered({"error": "The model does not exist."}, 404), Completion.IMPOSSIBLE),
        ("vllm", answered(status=400), Completion.IMPOSSIBLE),
        ("vllm", answered(status=501), Completion.IMPOSSIBLE),
        ("tgi", answered({"generated_text": ""}), Completion.DONE),
        ("tgi", answered({"error_type": "overloaded"}, 429), Completion.FAILED),
        ("sglang", answered({"output_ids": [5], "meta_info": {"id": "x"}}), Completion.DONE),
        ("llama_cpp", answered({"content": "", "stop": True}), Completion.DONE),
    ],
)
def test_the_meaning_of_a_completion_response(
    name: str, answer: HttpResponse, completion: Completion
) -> None:
    assert engine(name).parse_completion(answer) is completion


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("vllm", "/v1/completions", {"model": "m", "prompt": "1", "max_tokens": 1}),
        ("sglang", "/generate", {"input_ids": [0]}),
        ("tgi", "/generate", {"inputs": "1"}),
        ("llama_cpp", "/completion", {"prompt": "1", "n_predict": 1}),
    ],
)
def test_the_request_for_a_token(name: str, path: str, body: dict[str, object]) -> None:
    request = engine(name).completion_request("m")
    assert request is not None
    assert (request.method, request.path) == ("POST", path)
    assert isinstance(request.body, dict)
    assert body.items() <= request.body.items()
    assert request.timeout == 20


@pytest.mark.parametrize("name", ["vllm", "sglang", "tgi", "llama_cpp", "triton", "generic"])
def test_a_configured_path_receives_a_completion_in_openai_format(name: str) -> None:
    wish = {"path": "/proxy/v1/completions", "prompt": "ping", "timeout": "3s"}
    request = engine(name, deep_probe=wish).completion_request("m")
    assert request is not None
    assert request.path == "/proxy/v1/completions"
    assert isinstance(request.body, dict)
    assert request.body["prompt"] == "ping"
    assert request.timeout == 3


@pytest.mark.parametrize("name", ["triton", "generic"])
def test_some_engines_have_no_completions_by_default(name: str) -> None:
    assert engine(name).completion_request("m") is None


def test_vllm_has_no_completion_without_a_model() -> None:
    assert engine("vllm").completion_request(None) is None


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_rank_is_chosen_by_a_header(name: str) -> None:
    chosen = engine(name).completion_request("m", rank="3")
    assert chosen is not None
    assert chosen.headers == {"X-Data-Parallel-Rank": "3"}
    for rank in ("", "x\r\ny: z"):
        any_of_them = engine(name).completion_request("m", rank=rank)
        assert any_of_them is not None
        assert not any_of_them.headers


@pytest.mark.parametrize(
    ("name", "url", "metrics_url", "url_of"),
    [
        ("vllm", URL, None, f"{URL}/metrics"),
        ("vllm", f"{URL}/behind/a/proxy", None, f"{URL}/behind/a/proxy/metrics"),
        ("vllm", URL, "http://other:1/m", "http://other:1/m"),
        ("triton", URL, None, "http://server:8002/metrics"),
        ("triton", "https://[::1]:8000", None, "http://[::1]:8002/metrics"),
        ("sglang_router", URL, None, "http://server:29000/metrics"),
    ],
)
def test_the_url_of_the_metrics(name: str, url: str, metrics_url: str | None, url_of: str) -> None:
    config = ServerConfig.model_validate({"name": "a", "engine": name, "url": url})
    one = build_engine(name, config, url, metrics_url)
    assert one.url_of(HttpRequest("metrics", "/metrics")) == url_of


def test_a_generic_server_has_its_full_url_and_completions_at_the_root() -> None:
    url = "http://server:1/status?full=1"
    config = ServerConfig.model_validate({"name": "a", "engine": "generic", "url": url})
    one = build_engine("generic", config, url)
    assert one.url_of(one.liveness_request) == url
    assert one.url_of(HttpRequest("completion", "/v1/completions")) == (
        "http://server:1/v1/completions"
    )


def test_an_unknown_engine_is_an_error_that_lists_the_known_ones() -> None:
    config = ServerConfig.model_validate({"name": "a", "engine": "vllm", "url": URL})
    with pytest.raises(ValueError, match="unknown engine x; known: vllm, sglang, "):
        build_engine("x", config, URL)


HARMLESS_POSTS = {"/v2/repository/index"}


@pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("status", [200, 401, 404, 503])
def test_no_engine_sends_a_harmful_request(kind: type[InferenceEngine], status: int) -> None:
    one = engine(kind.name)
    answers = {"liveness": answered(status=status)}
    for stage in ProbeStage:
        for _ in range(5):
            for request in one.requests(stage, answers, failed=True):
                answers[request.name] = answered(status=status)
                assert request.method == "GET" or request.path in HARMLESS_POSTS
                for word in ("pause", "collective", "abort", "flush", "update", "wake", "release"):
                    assert word not in request.path.replace("/is_paused", "")
                assert request.path != "/health"
