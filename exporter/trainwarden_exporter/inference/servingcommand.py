"""Reads from a command line which inference server it starts, and where that will listen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainwarden_exporter.inference.engines.routers import METRICS_PORT as ROUTER_METRICS_PORT
from trainwarden_exporter.inference.engines.triton import METRICS_PORT as TRITON_METRICS_PORT

_EVERYWHERE = ("", "0.0.0.0", "::", "*")  # noqa: S104 - recognised, not listened on
_LAST_PORT = 65535
_LAUNCHERS = re.compile(
    r"python[\d.]*|pypy[\d.]*|uvx?|conda|mamba|poetry|numactl|nice|ionice|chrt|taskset|env|nohup"
    r"|setsid|stdbuf|timeout|sudo|catchsegv|nsys|tini|dumb-init|docker-init"
)
"""Programs that run another one, whose name stands further on in their command line."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that a command line starts. `port` is None where it is chosen at random."""

    engine: str
    host: str
    port: int | None
    tls: bool = False
    path: str = ""
    """What its URL ends in."""
    model: str | None = None
    """The name it serves a model by."""
    metrics_port: int | None = None
    """The port of its metrics, where it is another one."""

    def url(self, port: int | None = None) -> str | None:
        """Where it is asked from the same machine, at `port` where the command does not say."""
        port = self.port or port
        return None if port is None else local_url(self.host, port, tls=self.tls) + self.path

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics are, if not at its own port."""
        if self.metrics_port is None:
            return None
        return local_url(self.host, self.metrics_port) + "/metrics"


def local_url(host: str, port: int, *, tls: bool = False) -> str:
    """The URL of a server on this machine that is bound to `host`."""
    if host in _EVERYWHERE:
        host = "127.0.0.1"
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(frozen=True, slots=True)
class _Program:
    """How one program is started: its names as a command and as a module, and its defaults."""

    engine: str
    port: int
    commands: tuple[tuple[str, ...], ...] = ()
    """A command, and the words that must follow it."""
    modules: str = ""
    """Regular expression for the whole name of a module."""
    host: str = "127.0.0.1"
    host_options: tuple[str, ...] = ("--host",)
    port_options: tuple[str, ...] = ("--port",)
    name_options: tuple[str, ...] = ("--served-model-name",)
    tls_options: tuple[str, ...] = ("--ssl-certfile",)
    metrics_options: tuple[str, ...] = ()
    metrics_port: int | None = None
    path: str = ""
    serves: Callable[[Sequence[str]], bool] = lambda _: True
    """Whether a server with these arguments has an API at all."""


def _is_first_node(arguments: Sequence[str]) -> bool:
    # Further nodes of one SGLang have nothing but a dummy that answers /health.
    return (_option(arguments, ("--node-rank",)) or "0") == "0"


# Defaults as read from vllm 0.33, sglang 0.5.23, sglang-router 0.3.2, vllm-router 0.1.17,
# TGI 3.3.7, llama.cpp 11434 and Triton e1db8a6. What AReaL wraps takes its usual arguments.
_PROGRAMS = (
    # Before it handed over to vLLM's own server, TRL had one with a slash after /health.
    _Program("generic", 8000, (("trl", "vllm-serve"),), path="/health/", host="0.0.0.0"),  # noqa: S104 - its default
    _Program(
        "vllm",
        8000,
        (("vllm", "serve"), ("vllm.entrypoints.cli.main", "serve")),
        r"vllm\.entrypoints\.openai\.api_server|areal\.(?:[\w.]+\.)?vllm_ext\.areal_vllm_server",
        host="",
        serves=lambda arguments: "--headless" not in arguments,
    ),
    _Program(
        "sglang",
        30000,
        (("sglang", "serve"),),
        r"sglang\.launch_server|areal\.(?:[\w.]+\.)?sglang\.launch_server",
        serves=_is_first_node,
    ),
    _Program(
        "sglang_router",
        30000,
        (("sglang-router",), ("smg",), ("amg",)),
        r"sglang_router\.launch_(?:router|server)",
        host="",
        metrics_options=("--prometheus-port",),
        metrics_port=ROUTER_METRICS_PORT,
    ),
    _Program(
        "vllm_router",
        30000,
        (("vllm-router",),),
        r"vllm_router\.launch_router",
        metrics_options=("--prometheus-port",),
        metrics_port=ROUTER_METRICS_PORT,
    ),
    _Program(
        "tgi",
        3000,
        (("text-generation-launcher",), ("text-generation-router",)),
        host="",
        host_options=("--hostname",),
        port_options=("--port", "-p"),
        tls_options=(),
    ),
    _Program(
        "llama_cpp",
        8080,
        (("llama-server",),),
        name_options=("--alias", "-a"),
        tls_options=("--ssl-cert-file",),
    ),
    _Program(
        "triton",
        8000,
        (("tritonserver",),),
        host="",
        host_options=("--http-address",),
        port_options=("--http-port",),
        tls_options=(),
        metrics_options=("--metrics-port",),
        metrics_port=TRITON_METRICS_PORT,
    ),
)

ENGINE_PORTS = {program.engine: program.port for program in _PROGRAMS if not program.path}
"""Where an engine listens by default."""


def parse_serving_command(arguments: Sequence[str]) -> Serving | None:
    """The server that a command line starts; None where it starts none that is known.

    A shell that holds such a command in one word is none: what it starts has a line of its own.
    """
    for program in _PROGRAMS:
        rest = next(_arguments_of(program, arguments), None)
        if rest is not None:
            return _serving(program, rest) if program.serves(rest) else None
    return None


def _arguments_of(program: _Program, arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """What follows the name of `program`, if it stands in `arguments`."""
    launched = bool(arguments) and _LAUNCHERS.fullmatch(_base(arguments[0])) is not None
    for index, argument in enumerate(arguments):
        for command in program.commands if index == 0 or launched else ():
            if (_base(argument), *arguments[index + 1 : index + len(command)]) == command:
                yield arguments[index + len(command) :]
        named = index > 0 and arguments[index - 1] == "-m"
        if named and program.modules and re.fullmatch(program.modules, argument):
            yield arguments[index + 1 :]


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _serving(program: _Program, arguments: Sequence[str]) -> Serving:
    port = _port(_option(arguments, program.port_options))
    metrics_port = _port(_option(arguments, program.metrics_options)) or program.metrics_port
    host = _option(arguments, program.host_options)
    return Serving(
        program.engine,
        program.host if host is None else host,
        program.port if port is None else port or None,
        tls=_option(arguments, program.tls_options) is not None,
        path=program.path,
        model=_option(arguments, program.name_options),
        metrics_port=metrics_port,
    )


def _option(arguments: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of the last of the options `names`; underscores are as good as dashes."""
    found = None
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") not in names:
            continue
        if equals:
            found = value
        elif index + 1 < len(arguments):
            found = arguments[index + 1]
    return found


def _port(text: str | None) -> int | None:
    if text is None or not text.isdecimal() or int(text[:6]) > _LAST_PORT:
        return None
    return int(text)
