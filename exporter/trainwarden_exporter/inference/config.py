"""Configuration of inference servers."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds
from trainwarden_exporter.inference.addresses import check_url
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.ca_bundle import system_context

EngineName = Literal[
    "vllm", "sglang", "tgi", "llama_cpp", "triton", "sglang_router", "vllm_router", "generic"
]

VLLM_SHORTEST_TIMEOUT = 10.0
"""Seconds. A busy vLLM answers late and would count as dead (vllm PR #38157)."""


Url = Annotated[str, AfterValidator(check_url)]
_Text = Annotated[str, StringConstraints(max_length=200)]
_Path = Annotated[str, StringConstraints(max_length=200, pattern=r"^/\S*$")]


class TlsConfig(Section):
    ca_file: LocalPath | None = None
    """CA certificates for the server's certificate; default: those of the system."""

    insecure: bool = False
    """Whether to skip certificate verification."""

    @model_validator(mode="after")
    def _check_ca_file(self) -> Self:
        if self.ca_file is None:
            return self  # no TLS file to read for plain http
        try:
            self.context()
        except (OSError, ValueError) as error:
            raise LocatedError(f"CA file unusable: {error}", "ca_file") from None
        return self

    def context(self) -> ssl.SSLContext:
        """Returns the shared TLS context, which must not be modified.

        Raises OSError or ValueError for an invalid file.
        """
        if self.ca_file is not None:
            return bounded_call(self.ca_file, self._read_context)
        return self._read_context()

    def _read_context(self) -> ssl.SSLContext:
        if not self.insecure:
            return (
                system_context()
                if self.ca_file is None
                else ssl.create_default_context(cafile=self.ca_file)
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self.ca_file is not None:  # validated although unused
            context.load_verify_locations(self.ca_file)
        return context


class DeepProbeConfig(Section):
    """One-token completions, requested only if nothing else proves that the server works."""

    enabled: bool | None = None
    """Whether completions may be requested; default: for every engine that supports them, but
    not for routers.
    """

    interval: Annotated[Seconds, Field(ge=5)] = 20.0
    """Minimum time between completions."""

    idle_after: Seconds = 60.0
    """Time without activity after which a completion is requested although no request is
    queued, because some engines that hang while idle look idle; 0 disables this."""

    timeout: Annotated[Seconds, Field(gt=0)] = 20.0
    """Timeout of a completion."""

    failures: Annotated[int, Field(ge=1)] = 2
    """Consecutive failures after which the server counts as hung."""

    prompt: Annotated[_Text, Field(min_length=1)] = "1"
    """Prompt of the completion."""

    path: _Path | None = None
    """Path of an OpenAI-compatible completion endpoint, if not the engine's default."""


class ServerConfig(Section):
    """An inference server, or all servers of a worker."""

    name: Name
    """Label `server`; a number is appended if a worker runs several servers."""

    engine: EngineName | None = None
    """Type of the server; default: detected from the worker's command line."""

    url: Url | None = None
    """Address of the server; default: derived from the worker's command lines and open ports.
    For `generic` the full URL, for others the base URL of the API."""

    metrics_url: Url | None = None
    """Path of the metrics, if not the engine's default."""

    worker: Name | None = None
    """The worker of this run that runs the server. With it a starting server is not
    reported as down.
    """

    role: _Text = "inference"
    """Label `role`: purpose of the server, freely chosen."""

    model: _Text | None = None
    """Model for one-token completions; default: the first served model."""

    api_key_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        None
    )
    """Environment variable with the server's API key; requires `url`."""

    api_key_file: LocalPath | None = None
    """File with the server's API key; requires `url`; read again when it changes."""

    tls: TlsConfig = TlsConfig()
    """TLS settings of an https connection."""

    interval: Annotated[Seconds, Field(ge=1)] = 5.0
    """Time between two probes."""

    timeout: Annotated[Seconds, Field(gt=0)] = 15.0
    """Timeout of a probe. A busy server occasionally takes 30 to 40 s: the product of `timeout`
    and `failures` should exceed this."""

    failures: Annotated[int, Field(ge=1)] = 3
    """Consecutive probes without an answer, or with an error, after which the server counts as
    down. A server that refuses connections, or reports a dead engine, counts as down
    immediately."""

    start_grace: Seconds = 600.0
    """Maximum start-up time. Beyond it an alert fires; beyond twice this time the server counts
    as down. Without a named worker, it counts as down after refusing connections for this time."""

    pause_limit: Seconds = 600.0
    """Maximum duration of a pause or weight update; beyond it an alert fires."""

    busy_limit: Seconds = 3600.0
    """For `generic` with a worker: maximum time without an answer while its processes work (5 % of
    a CPU, a GPU, or storage); until then the server is up and `busy`. Beyond it an alert fires, and
    the server is not restarted."""

    deep_probe: DeepProbeConfig = DeepProbeConfig()
    """One-token completions."""

    status: Annotated[int, Field(ge=100, le=599)] | None = None
    """For `generic`: expected HTTP status; default: any 2xx."""

    json_field: _Text = ""
    """For `generic`: the checked field of the JSON response, parts joined by `/`."""

    json_value: str | int | float | bool | None = None
    """For `generic`: expected value of the field; default: any value except null."""

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if self.url is None and self.worker is None:
            raise ValueError("set url or worker, to locate the server")
        if self.url is not None and self.engine is None:
            raise LocatedError("required if url is set", "engine")
        if self.engine == "generic" and self.url is None:
            raise LocatedError("required if engine is generic", "url")
        if self.api_key_env is not None and self.api_key_file is not None:
            raise LocatedError("cannot be combined with api_key_env", "api_key_file")
        key = next((name for name in ("api_key_env", "api_key_file") if getattr(self, name)), None)
        if key is not None and self.url is None:
            # any account can start a process that looks like the server
            raise LocatedError("requires url: a key is only sent to a configured address", key)
        if self.engine == "vllm" and self.timeout < VLLM_SHORTEST_TIMEOUT:
            raise LocatedError(
                f"must be at least {VLLM_SHORTEST_TIMEOUT:g}s: a busy vLLM answers late", "timeout"
            )
        if self.engine != "generic" and (self.status or self.json_field):
            raise ValueError("status and json_field require engine: generic")
        return self


class AnnouncedServer(ServerConfig):
    """The server of a run that announced itself; no section of the file."""

    ready: Url | None = None
    """Address that answers once the server is ready, as its start names it. Where its command
    line is that of no known engine, only this shows where it is."""


def check_servers(servers: Sequence[ServerConfig], workers: Collection[str]) -> None:
    """Raises LocatedError for a duplicate name or an unknown worker."""
    unique_by(servers, "name", "server", "inference")
    for index, server in enumerate(servers):
        if server.worker is not None and server.worker not in workers:
            raise LocatedError(
                f"no worker of this run has the name {server.worker}", "inference", index, "worker"
            )
