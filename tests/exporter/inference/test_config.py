from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file.loader import parse
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.target import ServerTarget

HEAD = """\
runs:
  - name: grpo
    workers:
      - {name: server, match: {command: vllm serve}}
    inference:
"""


def servers(text: str) -> tuple[ServerConfig, ...]:
    whole = HEAD + textwrap.indent(textwrap.dedent(text), "      ")
    return parse(whole, Path("exporter.yml"), Config).runs[0].inference


def test_a_server_in_full() -> None:
    (server,) = servers(
        """\
        - name: sglang-0
          engine: sglang
          url: http://127.0.0.1:30000/
          metrics_url: http://127.0.0.1:30001/metrics
          worker: server
          role: rollout
          model: policy
          api_key_file: key
          tls: {insecure: true}
          interval: 10s
          timeout: 20s
          failures: 2
          start_grace: 15m
          pause_limit: 5m
          deep_probe: {enabled: true, interval: 1m, idle_after: 0, timeout: 30s, failures: 3}
        """
    )
    assert server.url == "http://127.0.0.1:30000"
    assert server.start_grace == 900
    assert server.deep_probe.idle_after == 0
    target = ServerTarget("demo", "sglang-0", "sglang", server.url, server)
    assert target.limits.probes_completions
    assert target.limits.completion_interval == 60
    assert target.limits.idle_after == 0
    assert target.limits.completion_failures == 3
    assert hash(server) == hash(server.model_copy())


def test_a_worker_is_enough() -> None:
    (server,) = servers("- {name: rollout, worker: server}")
    assert server.engine is None
    assert server.url is None
    assert server.timeout * server.failures > 40, "a busy vLLM takes as long"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {name: a}", r"runs\[0\].inference\[0\]: set url or worker"),
        ("- {name: a, url: 'http://a:1'}", "engine: required if url is set"),
        ("- {name: a, engine: generic, worker: server}", "url: required if engine is generic"),
        (
            "- {name: a, worker: nobody}",
            r"inference\[0\].worker: no worker of this run has the name",
        ),
        (
            "- {name: a, worker: server}\n- {name: a, worker: server}",
            r"inference\[1\].name: another server is named a",
        ),
        ("- {name: a, engine: vllm, url: 'ftp://a:1'}", "url: not a URL"),
        ("- {name: a, engine: vllm, url: 'http://'}", "url: not a URL"),
        ("- {name: a, engine: vllm, url: 'http://a:99999'}", "url: not a URL"),
        ("- {name: a, engine: vllm, url: 'http://me:pw@a:1'}", "no user and password allowed"),
        ("- {name: a, engine: vllm, url: 'http://a:1#x'}", "no fragment allowed"),
        ("- {name: a, engine: vlmm, url: 'http://a:1'}", "engine: expected 'vllm', 'sglang'"),
        (
            "- {name: a, engine: vllm, url: 'http://a:1', timeout: 5s}",
            "timeout: must be at least 10s: a busy vLLM answers late",
        ),
        (
            "- {name: a, engine: vllm, url: 'http://a:1', json_field: x}",
            "status and json_field require engine: generic",
        ),
        (
            "- {name: a, worker: server, api_key_env: KEY, api_key_file: key}",
            "api_key_file: cannot be combined with api_key_env",
        ),
        (
            "- {name: a, worker: server, api_key_env: KEY}",
            "api_key_env: requires url: a key is only sent to a configured address",
        ),
        (
            "- {name: a, worker: server, tls: {ca_file: nowhere.pem}}",
            "ca_file: CA file unusable",
        ),
        ("- {name: a, worker: server, deep_probe: {interval: 1s}}", "interval: should be greater"),
        ("- {name: a, worker: server, deep_probe: {path: v1}}", "path: .*pattern"),
        ("- {name: a, worker: server, deep_prob: {}}", "unknown key"),
    ],
)
def test_what_cannot_be_meant_is_reported_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        servers(text)
    assert all(problem.line is not None for problem in raised.value.problems)


def test_a_file_that_holds_no_certificates_is_reported_to_hold_none(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN nothing\n")
    with pytest.raises(ConfigError, match="CA file unusable"):
        servers(f"- {{name: a, worker: server, tls: {{ca_file: {path}}}}}")
