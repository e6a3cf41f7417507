"""The web config file: TLS, users, headers and rate limit in the format of Prometheus exporters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainwarden_exporter.serving.authentication import BcryptHash
from trainwarden_exporter.serving.tls import build_context, doubt
from trainwarden_exporter.serving.tlsconfig import Stamp, TLSServerConfig, read_stamp
from trainwarden_exporter.yamlfile import MisplacedError, Section, load

Stamps = dict[Path, Stamp]
"""The files a configuration was made from, and what they looked like then."""

_SPAN = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<unit>ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_go_duration(value: object) -> float:
    """Seconds in a duration as Go writes it: `1s`, `1m30s`, `1.5h`, or 0.

    Raises ValueError for anything else, also for a number without a unit: the toolkit would take
    it for nanoseconds, which nobody means.
    """
    if value in (0, "0") and not isinstance(value, bool):
        return 0.0
    if not isinstance(value, str) or re.fullmatch(f"(?:{_SPAN.pattern})+", value) is None:
        raise ValueError("not a duration: write 0, 500ms, 1s, 1m30s")
    return sum(float(m["number"]) * _UNIT_SECONDS[m["unit"]] for m in _SPAN.finditer(value))


def _null_is_empty(value: object) -> object:
    return {} if value is None else value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("has a character that no header may hold")
    return value


_HeaderText = Annotated[str, AfterValidator(_printable)]


class Headers(Section):
    """Headers added to every response; a blank one is left out."""

    content_security_policy: _HeaderText = Field(default="", alias="Content-Security-Policy")
    x_frame_options: Literal["", "deny", "sameorigin"] = Field(default="", alias="X-Frame-Options")
    x_content_type_options: Literal["", "nosniff"] = Field(
        default="", alias="X-Content-Type-Options"
    )
    x_xss_protection: Annotated[_HeaderText, BeforeValidator(str)] = Field(
        default="", alias="X-XSS-Protection"
    )
    strict_transport_security: _HeaderText = Field(default="", alias="Strict-Transport-Security")


class HTTPServerConfig(Section):
    """The section `http_server_config`."""

    http2: bool = True
    """Accepted and without effect: HTTP/1.1 is spoken either way, as a client may always choose."""
    headers: Annotated[Headers, BeforeValidator(_null_is_empty)] = Headers()


class RateLimit(Section):
    """The section `rate_limit`: a token bucket over all requests but those to open paths."""

    interval: Annotated[float, BeforeValidator(parse_go_duration)] = 0.0
    """Seconds until one more request is allowed; 0: no limit."""
    burst: int = Field(default=0, ge=0)
    """Requests allowed at once; at least 1 where there is a limit, for 0 would refuse them all."""

    @model_validator(mode="after")
    def _passable(self) -> Self:
        if self.interval > 0 and self.burst < 1:
            raise MisplacedError("0 would refuse every request; at least 1", "burst")
        return self


class WebConfig(Section):
    """A web config file; an empty one means plain HTTP for everybody.

    The format is that of https://github.com/prometheus/exporter-toolkit, docs/web-configuration.md
    (v0.17). Whether certificate, key and settings go together is tried as it is validated.
    """

    tls_server_config: Annotated[TLSServerConfig, BeforeValidator(_null_is_empty)] = (
        TLSServerConfig()
    )
    http_server_config: Annotated[HTTPServerConfig, BeforeValidator(_null_is_empty)] = (
        HTTPServerConfig()
    )
    basic_auth_users: Annotated[dict[str, BcryptHash], BeforeValidator(_null_is_empty)] = Field(
        default={}, repr=False
    )
    """Users and the bcrypt hashes of their passwords; with none, nobody is asked."""
    rate_limit: Annotated[RateLimit, BeforeValidator(_null_is_empty)] = RateLimit()

    @model_validator(mode="after")
    def _handshakes(self) -> Self:
        if self.tls is not None:
            try:
                doubt(build_context(self.tls), self.tls)
            except MisplacedError as error:
                raise MisplacedError(str(error), "tls_server_config", *error.location) from error
        return self

    @property
    def tls(self) -> TLSServerConfig | None:
        """The TLS settings; None for plain HTTP."""
        return self.tls_server_config if self.tls_server_config.enabled else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers to add to every response."""
        given = self.http_server_config.headers.model_dump(by_alias=True)
        return {name: value for name, value in given.items() if value}


def load_web_config(path: Path) -> tuple[WebConfig, Stamps]:
    """The web config in `path`, and the stamps of `path` and all files it names, as read.

    Relative paths in it are relative to its folder. Raises ConfigError naming every problem found,
    also those of the files it names, with the line of `path` that names them.
    """
    # Taken before reading: a change in between is then seen at the next look.
    stamps = read_stamps([path])
    config = load(path, WebConfig)
    tls = config.tls_server_config
    for file in (tls.cert_file, tls.key_file, tls.client_ca_file):
        if file is not None:
            stamps[file.path] = file.stamp
    return config, stamps


def read_stamps(paths: Iterable[Path]) -> Stamps:
    """The stamps of `paths` as they are now."""
    return {path: read_stamp(path) for path in paths}
