"""The inference servers of a run in exporter.yml."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Sequence
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.authorities import system_context
from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section

EngineName = Literal[
    "vllm", "sglang", "tgi", "llama_cpp", "triton", "sglang_router", "vllm_router", "generic"
]

VLLM_SHORTEST_TIMEOUT = 10.0
"""Seconds; a busy vLLM answers late, and would be taken for dead (vllm PR #38157)."""


def _url(value: str) -> str:
    parts = urlsplit(value)
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("not a URL: write http://host:port or https://host:port")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user and password here: it is shown; use api_key_file")
    if parts.fragment:
        raise ValueError("a URL to ask has no fragment")
    return value.rstrip("/") if not parts.query else value


Url = Annotated[str, StringConstraints(max_length=500), AfterValidator(_url)]
_Text = Annotated[str, StringConstraints(max_length=200)]
_Path = Annotated[str, StringConstraints(max_length=200, pattern=r"^/\S*$")]


class TlsConfig(Section):
    ca_file: LocalPath | None = None
    """The authorities that the server's certificate may come from; those of the system if none."""

    insecure: bool = False
    """Whether any certificate will do."""

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        if self.ca_file is None:
            return self  # nothing to go wrong, and nothing to read unless a server is asked so
        try:
            self.context()
        except (OSError, ValueError) as error:
            raise MisplacedError(f"no certificates there: {error}", "ca_file") from None
        return self

    def context(self) -> ssl.SSLContext:
        """What a connection is secured with, not to be changed: servers may share it.

        Raises OSError or ValueError for a bad file.
        """
        if not self.insecure:
            return (
                system_context()
                if self.ca_file is None
                else ssl.create_default_context(cafile=self.ca_file)
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self.ca_file is not None:  # of no use, but a file that is named is to be good
            context.load_verify_locations(self.ca_file)
        return context


class DeepProbeConfig(Section):
    """The completion of one token, asked for only where nothing else proves life."""

    enabled: bool | None = None
    """Whether it may be asked for; when not given, of every engine that can, and of no router."""

    interval: Annotated[Seconds, Field(ge=5)] = 20.0
    """The least time from one to the next."""

    idle_after: Seconds = 60.0
    """How long there may be no sign of life before it is asked for though no request waits, because
    some engines that hang while idle look idle; 0 for never."""

    timeout: Annotated[Seconds, Field(gt=0)] = 20.0
    """How long one token may take."""

    failures: Annotated[int, Field(ge=1)] = 2
    """How many must fail in a row before the server counts as hung."""

    prompt: Annotated[_Text, Field(min_length=1)] = "1"
    """What is to be completed."""

    path: _Path | None = None
    """Where a completion in OpenAI's form is to be had, where not at the engine's usual place."""


class ServerConfig(Section):
    """One inference server, or all that one worker is."""

    name: Name
    """Label `server`; where a worker turns out to be several servers, a number is added."""

    engine: EngineName | None = None
    """What kind of server it is; read from the worker's command line when not given."""

    url: Url | None = None
    """Where it is asked; found by the worker's command lines and open ports when not given. For
    `generic` the whole address, for all others that below which they have their API."""

    metrics_url: Url | None = None
    """Where its metrics are, if not at the engine's usual place."""

    worker: Name | None = None
    """The worker of this run that it is. Tells a server that starts from one that is down."""

    role: _Text = "inference"
    """Label `role`: what it is for, in a word of your own."""

    model: _Text | None = None
    """The model to ask for one token of; the first it serves when not given."""

    api_key_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        None
    )
    """The environment variable that holds its API key."""

    api_key_file: LocalPath | None = None
    """The file that holds its API key; read again when it changes."""

    tls: TlsConfig = TlsConfig()
    """How its certificate is checked."""

    interval: Annotated[Seconds, Field(ge=1)] = 5.0
    """How often it is asked."""

    timeout: Annotated[Seconds, Field(gt=0)] = 15.0
    """How long it may take to say that it is there. A busy one takes 30 to 40 s now and then: what
    this times `failures` makes should be more."""

    failures: Annotated[int, Field(ge=1)] = 3
    """How often in a row it may be silent, or answer with an error, before it counts as down. One
    that refuses connections, or says that its engine is dead, counts at once."""

    start_grace: Seconds = 600.0
    """How long it may take to start. Beyond it an alert is raised, and beyond twice that it counts
    as down. Where no worker is named, it counts as down once it has refused for so long."""

    pause_limit: Seconds = 600.0
    """How long it may be paused or have its weights updated; beyond it an alert is raised."""

    deep_probe: DeepProbeConfig = DeepProbeConfig()
    """Asking for one token."""

    status: Annotated[int, Field(ge=100, le=599)] | None = None
    """For `generic`: the status that is good; any of success when not given."""

    json_field: _Text = ""
    """For `generic`: the field of the JSON answer to look at, parts joined by `/`."""

    json_value: str | int | float | bool | None = None
    """For `generic`: what must stand there; anything but nothing when not given."""

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.url is None and self.worker is None:
            raise ValueError("a url or a worker is needed: where else is it to be found?")
        if self.url is not None and self.engine is None:
            raise MisplacedError("required where a url is given", "engine")
        if self.engine == "generic" and self.url is None:
            raise MisplacedError("required for a generic server", "url")
        if self.api_key_env is not None and self.api_key_file is not None:
            raise MisplacedError("api_key_env is given already", "api_key_file")
        if self.engine == "vllm" and self.timeout < VLLM_SHORTEST_TIMEOUT:
            raise MisplacedError(
                f"a busy vLLM answers late: at least {VLLM_SHORTEST_TIMEOUT:g}s", "timeout"
            )
        if self.engine != "generic" and (self.status or self.json_field):
            raise ValueError("status and json_field are for engine: generic")
        return self


def check_servers(servers: Sequence[ServerConfig], workers: Collection[str]) -> None:
    """Raise MisplacedError (from the run) for a name given twice or a worker that is not there."""
    seen: set[str] = set()
    for index, server in enumerate(servers):
        if server.name in seen:
            raise MisplacedError(
                f"another server is named {server.name}", "inference", index, "name"
            )
        seen.add(server.name)
        if server.worker is not None and server.worker not in workers:
            raise MisplacedError(
                f"no worker of this run is named {server.worker}", "inference", index, "worker"
            )
