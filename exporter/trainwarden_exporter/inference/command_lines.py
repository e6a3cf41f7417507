"""Parses which inference server a command line starts, and its address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainwarden_exporter.inference.engines.routers import METRICS_PORT as ROUTER_METRICS_PORT
from trainwarden_exporter.inference.engines.triton import METRICS_PORT as TRITON_METRICS_PORT

_ANY_ADDRESS = ("", "0.0.0.0", "::", "*")  # noqa: S104 - recognised, not listened on
_LAST_PORT = 65535
_LAUNCHERS = re.compile(
    r"python[\d.]*|pypy[\d.]*|uvx?|conda|mamba|poetry|numactl|nice|ionice|chrt|taskset|env|nohup"
    r"|setsid|stdbuf|timeout|sudo|catchsegv|nsys|tini|dumb-init|docker-init"
)
"""Programs that run another one, whose name follows in their command line."""


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """A server started by a command line. `port` is None if it is chosen at random."""

    engine: str
    host: str
    port: int | None
    tls: bool = False
    path: str = ""
    """Path of its URL."""
    model: str | None = None
    """Name of the served model."""
    metrics_port: int | None = None
    """Port of its metrics, if different."""

    def url(self, port: int | None = None) -> str | None:
        """Returns its local URL, with `port` if the command does not name one."""
        port = self.port or port
        return None if port is None else local_url(self.host, port, tls=self.tls) + self.path

    @property
    def metrics_url(self) -> str | None:
        """Returns the URL of its metrics, if not at its own port."""
        if self.metrics_port is None:
            return None
        return local_url(self.host, self.metrics_port) + "/metrics"


def local_url(host: str, port: int, *, tls: bool = False) -> str:
    """Returns the URL of a local server that is bound to `host`."""
    if host in _ANY_ADDRESS:
        host = "127.0.0.1"
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(frozen=True, slots=True)
class _ServerProgram:
    """How a program is started: names as a command and as a module, and defaults."""

    engine: str
    port: int
    commands: tuple[tuple[str, ...], ...] = ()
    """A command, and the words that must follow it."""
    modules: str = ""
    """Regular expression for the full name of a module."""
    host: str = "127.0.0.1"
    host_options: tuple[str, ...] = ("--host",)
    port_options: tuple[str, ...] = ("--port",)
    name_options: tuple[str, ...] = ("--served-model-name",)
    tls_options: tuple[str, ...] = ("--ssl-certfile",)
    metrics_options: tuple[str, ...] = ()
    metrics_port: int | None = None
    path: str = ""
    serves: Callable[[Sequence[str]], bool] = lambda _: True
    """Whether a server with these arguments has an API."""


def _is_first_node(arguments: Sequence[str]) -> bool:
    # Further nodes of one SGLang server only have a dummy that answers /health.
    return (_option(arguments, ("--node-rank",)) or "0") == "0"


# Defaults as of vllm 0.33, sglang 0.5.23, sglang-router 0.3.2, vllm-router 0.1.17, TGI 3.3.7,
# llama.cpp 11434 and Triton e1db8a6. AReaL's wrappers take the usual arguments.
_PROGRAMS = (
    # TRL's own server, which preceded its use of vLLM's, required a slash after /health.
    _ServerProgram("generic", 8000, (("trl", "vllm-serve"),), path="/health/", host="0.0.0.0"),  # noqa: S104 - its default
    _ServerProgram(
        "vllm",
        8000,
        (("vllm", "serve"), ("vllm.entrypoints.cli.main", "serve")),
        r"vllm\.entrypoints\.openai\.api_server|areal\.(?:[\w.]+\.)?vllm_ext\.areal_vllm_server",
        host="",
        serves=lambda arguments: "--headless" not in arguments,
    ),
    _ServerProgram(
        "sglang",
        30000,
        (("sglang", "serve"),),
        r"sglang\.launch_server|areal\.(?:[\w.]+\.)?sglang\.launch_server",
        serves=_is_first_node,
    ),
    _ServerProgram(
        "sglang_router",
        30000,
        (("sglang-router",), ("smg",), ("amg",)),
        r"sglang_router\.launch_(?:router|server)",
        host="",
        metrics_options=("--prometheus-port",),
        metrics_port=ROUTER_METRICS_PORT,
    ),
    _ServerProgram(
        "vllm_router",
        30000,
        (("vllm-router",),),
        r"vllm_router\.launch_router",
        metrics_options=("--prometheus-port",),
        metrics_port=ROUTER_METRICS_PORT,
    ),
    _ServerProgram(
        "tgi",
        3000,
        (("text-generation-launcher",), ("text-generation-router",)),
        host="",
        host_options=("--hostname",),
        port_options=("--port", "-p"),
        tls_options=(),
    ),
    _ServerProgram(
        "llama_cpp",
        8080,
        (("llama-server",),),
        name_options=("--alias", "-a"),
        tls_options=("--ssl-cert-file",),
    ),
    _ServerProgram(
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
"""Default port of each engine."""


def parse_server_command(arguments: Sequence[str]) -> ServerCommand | None:
    """Returns the server that a command line starts; None if it starts no known one.

    A shell with such a command in one argument does not count: the started process has its own
    command line.
    """
    for program in _PROGRAMS:
        rest = next(_arguments_of(program, arguments), None)
        if rest is not None:
            return _server_command(program, rest) if program.serves(rest) else None
    return None


def parse_address(arguments: Sequence[str]) -> str | None:
    """Returns the local `tcp://HOST:PORT` that `--host` and `--port` of any server name.

    None without a port. What an unknown server speaks there is not known.
    """
    port = _port(_option(arguments, ("--port",)))
    if not port:
        return None
    return local_url(_option(arguments, ("--host",)) or "", port).replace("http", "tcp", 1)


def _arguments_of(program: _ServerProgram, arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the arguments after the name of `program`, if `arguments` contains it."""
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


def _server_command(program: _ServerProgram, arguments: Sequence[str]) -> ServerCommand:
    port = _port(_option(arguments, program.port_options))
    metrics_port = _port(_option(arguments, program.metrics_options)) or program.metrics_port
    host = _option(arguments, program.host_options)
    return ServerCommand(
        program.engine,
        program.host if host is None else host,
        program.port if port is None else port or None,
        tls=_option(arguments, program.tls_options) is not None,
        path=program.path,
        model=_option(arguments, program.name_options),
        metrics_port=metrics_port,
    )


def _option(arguments: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the value of the last of the options `names`; underscores equal dashes."""
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
