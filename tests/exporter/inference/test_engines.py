"""What the engines make of what servers say: pages that were seen, and what may come instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines import ENGINES, build_engine
from trainwarden_exporter.inference.engines.base import Engine, Stage
from trainwarden_exporter.inference.questions import Answer, Contact, Question
from trainwarden_exporter.inference.reading import Beat, Completion, Life, Reading

SAMPLES = Path(__file__).parent / "samples"
URL = "http://server:8000"


def engine(name: str, **settings: Any) -> Engine:
    config = ServerConfig.model_validate({"name": "a", "engine": name, "url": URL, **settings})
    return build_engine(name, config, URL)


def said(body: object = b"", status: int = 200) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(Contact.ANSWERED, status, data)


def sample(name: str) -> Answer:
    return said((SAMPLES / name).read_bytes())


SILENT = Answer(Contact.SILENT)


@pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("contact", "life"),
    [
        (Contact.REFUSED, Life.REFUSED),
        (Contact.SILENT, Life.SILENT),
        (Contact.BROKEN, Life.BROKEN),
        (Contact.UNREACHABLE, Life.UNREACHABLE),
    ],
)
def test_where_no_answer_came_all_engines_agree(
    kind: type[Engine], contact: Contact, life: Life
) -> None:
    assert engine(kind.name).life(Answer(contact)) is life


@pytest.mark.parametrize(
    ("name", "answer", "life"),
    [
        ("vllm", said(), Life.SERVING),
        ("vllm", said(status=503), Life.DEAD),
        ("vllm", said(b"Internal Server Error", 500), Life.DEAD),
        ("vllm", said({"error": "The model is currently scaling."}, 503), Life.BAD),
        ("vllm", said(b"<html>no upstream</html>", 502), Life.BAD),
        ("vllm", said(status=307), Life.BAD),
        ("vllm", said(status=401), Life.UNAUTHORIZED),
        ("sglang", said(), Life.SERVING),
        ("sglang", said(status=503), Life.SERVING),
        ("sglang", said(status=404), Life.SERVING),
        ("sglang", said(status=500), Life.BAD),
        ("tgi", said({"error": "unhealthy"}, 503), Life.BAD),
        ("llama_cpp", said({"error": {"message": "Loading model"}}, 503), Life.LOADING),
        ("llama_cpp", said({"error": {"message": "no slot"}}, 503), Life.BAD),
        ("triton", said(status=400), Life.NOT_READY),
        ("sglang_router", said(status=503), Life.NOT_READY),
        ("vllm_router", said(status=503), Life.NOT_READY),
        ("generic", said(status=403), Life.UNAUTHORIZED),
    ],
)
def test_what_a_first_answer_means(name: str, answer: Answer, life: Life) -> None:
    assert engine(name).life(answer) is life


@pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "answer",
    [
        *(said(b""), said(b"\xff\xfe"), said(b"[" * 100_000), said(b"null"), said([]), said([[1]])),
        *(said({"data": 3}), said({"data": [1, None, {"id": None}]}), said({"loads": [None, {}]})),
        *(said({"loads": [{"timestamp": "x"}]}), said({"is_paused": "yes"}), said(b"1" * 5000)),
        *(said({"server_load": "many"}), said(status=500), said(status=204), SILENT),
    ],
)
def test_garbage_says_nothing(kind: type[Engine], answer: Answer) -> None:
    names = ("life", "metrics", "models", "paused", "asleep", "load", "loads", "weights", "model")
    reading = engine(kind.name).read(dict.fromkeys(names, answer))
    assert reading.beats == {}
    assert reading.running is None
    assert reading.kv_usage is None
    assert not reading.updating
    assert reading.asleep is None


def test_vllm_after_traffic() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_idle_after_traffic.txt")
    reading = engine("vllm").read({"metrics": page})
    assert (reading.running, reading.waiting, reading.kv_usage) == (0, 0, 0)
    assert reading.generated_tokens is not None
    assert reading.generated_tokens > 0
    assert reading.models == ("tiny",)
    assert reading.asleep is False
    assert reading.updating is None, "there never was an update"
    assert not reading.beats["0"].owed


def test_vllm_with_a_worker_that_hangs() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_worker_hung.txt")
    reading = engine("vllm").read({"metrics": page})
    assert reading.running == 1
    assert reading.beats["0"].owed
    assert reading.updating is False


def test_vllm_with_a_dead_engine_says_nothing_of_it_in_its_metrics() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_engine_dead_keepalive.txt")
    reading = engine("vllm").read({"metrics": page})
    assert reading == Reading(
        beats={"0": Beat(855 + 1254 + 20 + 4, owed=False)},
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
        asleep=False,
    )


def test_vllm_of_old_under_its_old_names() -> None:
    page = said(
        b'vllm:num_requests_running{model_name="m"} 2.0\n'
        b'vllm:num_requests_swapped{model_name="m"} 1.0\n'
        b'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'
        b'vllm:generation_tokens_total{model_name="m"} 9.0\n'
    )
    reading = engine("vllm").read({"metrics": page})
    assert (reading.running, reading.kv_usage) == (2, 0.25)
    assert reading.beats == {"": Beat(9, owed=True)}


def test_vllm_with_several_engines_has_a_heart_for_each() -> None:
    page = said(
        b'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 0\n'
        b'vllm:num_requests_waiting{engine="0"} 0\nvllm:num_requests_waiting{engine="1"} 3\n'
        b'vllm:num_requests_running{engine="2"} 0\nvllm:num_requests_waiting{engine="2"} 0\n'
        b'vllm:generation_tokens_total{engine="0"} 5\n'
        b'vllm:generation_tokens_total{engine="1"} 6\n'
        b'vllm:generation_tokens_total{engine="2"} 7\n'
        b'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
    )
    reading = engine("vllm").read({"metrics": page})
    assert reading.beats == {
        "0": Beat(5, owed=True),
        "1": Beat(6, owed=True),
        "2": Beat(7, owed=False),
    }
    assert (reading.running, reading.waiting, reading.kv_usage) == (2, 3, 0.9)
    assert reading.generated_tokens == 18


def test_vllm_tells_by_its_load_of_requests_that_no_gauge_shows() -> None:
    page = sample("vllm_cpu_0.32.0_metrics_idle_after_traffic.txt")
    reading = engine("vllm").read({"metrics": page, "load": said({"server_load": 3})})
    assert reading.beats["0"].owed


@pytest.mark.parametrize(
    ("answers", "paused", "asleep", "turning"),
    [
        ({"paused": said({"is_paused": True})}, True, None, None),
        ({"paused": said({"is_paused": False})}, False, None, None),
        ({"paused": said(status=404)}, None, None, None),
        ({"paused": said(status=404), "asleep": said({"is_sleeping": True})}, None, True, None),
        ({"paused": SILENT}, None, None, False),
    ],
)
def test_vllm_in_development_mode_says_whether_it_is_paused(
    answers: dict[str, Answer], paused: bool | None, asleep: bool | None, turning: bool | None
) -> None:
    reading = engine("vllm").read(answers)
    assert (reading.paused, reading.asleep, reading.turning) == (paused, asleep, turning)


@pytest.mark.parametrize(
    ("answers", "paused", "unready", "turning"),
    [
        ({"life": said()}, False, False, None),
        ({"life": said(status=404)}, None, False, None),
        ({"life": said(status=503), "ping": said()}, True, True, None),
        ({"life": said(status=503), "ping": said(status=503)}, None, True, None),
        ({"life": said(status=503), "ping": said(status=401)}, True, True, None),
        (
            {"life": said(status=503), "ping": said(status=503), "schedulers": said({})},
            *(True, True, True),
        ),
        (
            {"life": said(status=503), "ping": said(status=503), "schedulers": SILENT},
            *(False, True, False),
        ),
    ],
)
def test_sglang_in_a_pause_and_in_what_looks_like_one(
    answers: dict[str, Answer], paused: bool | None, unready: bool, turning: bool | None
) -> None:
    reading = engine("sglang").read(answers)
    assert (reading.paused, reading.unready, reading.turning) == (paused, unready, turning)


def test_sglang_by_what_its_schedulers_said_last() -> None:
    loads = [
        {"dp_rank": rank, "timestamp": 1.5 + rank, "num_running_reqs": 2, "num_waiting_reqs": 1}
        for rank in (0, 1)
    ]
    reading = engine("sglang").read({"loads": said({"timestamp": "…", "loads": loads})})
    assert reading.beats == {
        "0": Beat(1.5, owed=True, ticks=True),
        "1": Beat(2.5, owed=True, ticks=True),
    }
    assert (reading.running, reading.waiting) == (4, 2)


def test_sglang_by_its_metrics() -> None:
    page = said(
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
    reading = engine("sglang").read({"metrics": page})
    assert (reading.running, reading.waiting, reading.kv_usage) == (2, 4, 0.5)
    assert (reading.generated_tokens, reading.aborts, reading.errors) == (90, 4, 3)
    assert reading.beats == {"": Beat(100, owed=True)}
    assert reading.updating is True


def test_the_weights_of_sglang_under_the_new_address_and_the_old() -> None:
    info = said({"model_path": "m", "weight_version": "step_12"})
    assert engine("sglang").read({"model": info}).weight_version == "step_12"
    old = {"model": said(status=404), "old_model": info}
    assert engine("sglang").read(old).weight_version == "step_12"


def test_llama_cpp_and_the_routers_as_they_were_seen() -> None:
    reading = engine("llama_cpp").read({"metrics": sample("llama_cpp_server_metrics.txt")})
    assert (reading.generated_tokens, reading.prompt_tokens) == (8, 4)
    assert reading.beats == {"": Beat(20, owed=False)}
    reading = engine("sglang_router").read({"metrics": sample("sglang_router_0.3.2_metrics.txt")})
    assert (reading.backends, reading.healthy_backends, reading.running) == (1, 1, 0)
    reading = engine("vllm_router").read({"metrics": sample("vllm_router_0.1.17_metrics.txt")})
    assert (reading.backends, reading.healthy_backends, reading.running) == (1, 1, 0)


def test_a_loop_of_llama_cpp_that_does_not_take_up_the_question_for_metrics_does_not_turn() -> None:
    assert engine("llama_cpp").read({"metrics": SILENT}).turning is False
    assert engine("llama_cpp").read({"metrics": said(status=501)}).turning is None


@pytest.mark.parametrize(
    ("name", "answer", "completion"),
    [
        ("vllm", said({"choices": [{"text": " 1"}]}), Completion.DONE),
        ("vllm", said({"choices": []}), Completion.FAILED),
        ("vllm", said(b"<html>"), Completion.FAILED),
        ("vllm", SILENT, Completion.FAILED),
        ("vllm", Answer(Contact.REFUSED), Completion.FAILED),
        ("vllm", said(status=500), Completion.FAILED),
        ("vllm", said({"error": "too many queued requests"}, 503), Completion.FAILED),
        ("vllm", said({"error": {"type": "engine_paused"}}, 503), Completion.PAUSED),
        ("vllm", said(status=401), Completion.IMPOSSIBLE),
        ("vllm", said({"error": "The model does not exist."}, 404), Completion.IMPOSSIBLE),
        ("vllm", said(status=400), Completion.IMPOSSIBLE),
        ("vllm", said(status=501), Completion.IMPOSSIBLE),
        ("tgi", said({"generated_text": ""}), Completion.DONE),
        ("tgi", said({"error_type": "overloaded"}, 429), Completion.FAILED),
        ("sglang", said({"output_ids": [5], "meta_info": {"id": "x"}}), Completion.DONE),
        ("llama_cpp", said({"content": "", "stop": True}), Completion.DONE),
    ],
)
def test_what_came_of_asking_for_a_token(name: str, answer: Answer, completion: Completion) -> None:
    assert engine(name).completed(answer) is completion


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("vllm", "/v1/completions", {"model": "m", "prompt": "1", "max_tokens": 1}),
        ("sglang", "/generate", {"input_ids": [0]}),
        ("tgi", "/generate", {"inputs": "1"}),
        ("llama_cpp", "/completion", {"prompt": "1", "n_predict": 1}),
    ],
)
def test_how_a_token_is_asked_for(name: str, path: str, body: dict[str, object]) -> None:
    question = engine(name).completion("m")
    assert question is not None
    assert (question.method, question.path) == ("POST", path)
    assert isinstance(question.body, dict)
    assert body.items() <= question.body.items()
    assert question.patience == 20


@pytest.mark.parametrize("name", ["vllm", "sglang", "tgi", "llama_cpp", "triton", "generic"])
def test_a_path_of_ones_own_takes_a_completion_in_openais_form(name: str) -> None:
    wish = {"path": "/proxy/v1/completions", "prompt": "ping", "timeout": "3s"}
    question = engine(name, deep_probe=wish).completion("m")
    assert question is not None
    assert question.path == "/proxy/v1/completions"
    assert isinstance(question.body, dict)
    assert question.body["prompt"] == "ping"
    assert question.patience == 3


@pytest.mark.parametrize("name", ["triton", "generic"])
def test_of_some_a_token_cannot_be_asked_for(name: str) -> None:
    assert engine(name).completion("m") is None


def test_without_a_model_vllm_cannot_be_asked_for_one() -> None:
    assert engine("vllm").completion(None) is None


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_an_engine_among_several_is_chosen_by_a_header(name: str) -> None:
    chosen = engine(name).completion("m", rank="3")
    assert chosen is not None
    assert chosen.headers == {"X-Data-Parallel-Rank": "3"}
    for rank in ("", "x\r\ny: z"):
        any_of_them = engine(name).completion("m", rank=rank)
        assert any_of_them is not None
        assert not any_of_them.headers


@pytest.mark.parametrize(
    ("name", "url", "metrics_url", "address"),
    [
        ("vllm", URL, None, f"{URL}/metrics"),
        ("vllm", f"{URL}/behind/a/proxy", None, f"{URL}/behind/a/proxy/metrics"),
        ("vllm", URL, "http://other:1/m", "http://other:1/m"),
        ("triton", URL, None, "http://server:8002/metrics"),
        ("triton", "https://[::1]:8000", None, "http://[::1]:8002/metrics"),
        ("sglang_router", URL, None, "http://server:29000/metrics"),
    ],
)
def test_where_the_metrics_are(name: str, url: str, metrics_url: str | None, address: str) -> None:
    config = ServerConfig.model_validate({"name": "a", "engine": name, "url": url})
    one = build_engine(name, config, url, metrics_url)
    assert one.address(Question("metrics", "/metrics")) == address


def test_any_other_server_has_its_whole_address_and_its_completions_at_the_root() -> None:
    url = "http://server:1/status?full=1"
    config = ServerConfig.model_validate({"name": "a", "engine": "generic", "url": url})
    one = build_engine("generic", config, url)
    assert one.address(one.liveness) == url
    assert one.address(Question("completion", "/v1/completions")) == (
        "http://server:1/v1/completions"
    )


def test_an_engine_nobody_knows_is_an_error_that_names_those_that_are_known() -> None:
    config = ServerConfig.model_validate({"name": "a", "engine": "vllm", "url": URL})
    with pytest.raises(ValueError, match="no engine is named x; known are vllm, sglang, "):
        build_engine("x", config, URL)


HARMLESS_POSTS = {"/v2/repository/index"}


@pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("status", [200, 401, 404, 503])
def test_none_asks_anything_that_could_hurt(kind: type[Engine], status: int) -> None:
    one = engine(kind.name)
    answers = {"life": said(status=status)}
    for stage in Stage:
        for _ in range(5):
            for question in one.questions(stage, answers, failed=True):
                answers[question.name] = said(status=status)
                assert question.method == "GET" or question.path in HARMLESS_POSTS
                for word in ("pause", "collective", "abort", "flush", "update", "wake", "release"):
                    assert word not in question.path.replace("/is_paused", "")
                assert question.path != "/health"
