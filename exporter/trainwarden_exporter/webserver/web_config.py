"""The web config file: TLS, users, headers and rate limit in the format of Prometheus exporters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, load
from trainwarden_exporter.webserver.basic_auth import BcryptHash
from trainwarden_exporter.webserver.tls import build_context, certificate_warning
from trainwarden_exporter.webserver.tls_config import Stamp, TLSServerConfig, read_stamp

Stamps = dict[Path, Stamp]
"""The files of a configuration, with their stamps when they were read."""

_SPAN = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<unit>ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_go_duration(value: object) -> float:
    """Returns the seconds in a duration of Go: `1s`, `1m30s`, `1.5h`, or 0.

    Raises ValueError for any other text, also for a number without a unit, which the toolkit would
    read as nanoseconds.
    """
    if value in (0, "0") and not isinstance(value, bool):
        return 0.0
    if not isinstance(value, str) or re.fullmatch(f"(?:{_SPAN.pattern})+", value) is None:
        raise ValueError("not a duration: write 0, 500ms, 1s, 1m30s")
    return sum(float(m["number"]) * _UNIT_SECONDS[m["unit"]] for m in _SPAN.finditer(value))


def _empty_if_null(value: object) -> object:
    return {} if value is None else value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("has a character that is not allowed in a header")
    return value


_HeaderText = Annotated[str, AfterValidator(_printable)]


class Headers(Section):
    """Headers added to every response, unless blank."""

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
    """Accepted and without effect: the server speaks HTTP/1.1, which each client may choose."""
    headers: Annotated[Headers, BeforeValidator(_empty_if_null)] = Headers()


class RateLimit(Section):
    """The section `rate_limit`: a token bucket for all requests except those to open paths."""

    interval: Annotated[float, BeforeValidator(parse_go_duration)] = 0.0
    """Seconds until one more request is allowed; 0: no limit."""
    burst: int = Field(default=0, ge=0)
    """Requests allowed at once; at least 1 with a limit, because 0 would reject all requests."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if self.interval > 0 and self.burst < 1:
            raise LocatedError("0 would reject every request; at least 1", "burst")
        return self


class WebConfig(Section):
    """A web config file; an empty file means plain HTTP without authentication.

    The format is that of https://github.com/prometheus/exporter-toolkit, docs/web-configuration.md
    (v0.17). The validation includes a trial of certificate, key and settings.
    """

    tls_server_config: Annotated[TLSServerConfig, BeforeValidator(_empty_if_null)] = (
        TLSServerConfig()
    )
    http_server_config: Annotated[HTTPServerConfig, BeforeValidator(_empty_if_null)] = (
        HTTPServerConfig()
    )
    basic_auth_users: Annotated[dict[str, BcryptHash], BeforeValidator(_empty_if_null)] = Field(
        default={}, repr=False
    )
    """Users and the bcrypt hashes of their passwords; empty: no authentication."""
    rate_limit: Annotated[RateLimit, BeforeValidator(_empty_if_null)] = RateLimit()

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if self.tls is not None:
            try:
                certificate_warning(build_context(self.tls), self.tls)
            except LocatedError as error:
                raise LocatedError(str(error), "tls_server_config", *error.location) from error
        return self

    @property
    def tls(self) -> TLSServerConfig | None:
        """The TLS settings; None for plain HTTP."""
        return self.tls_server_config if self.tls_server_config.enabled else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that are added to every response."""
        given = self.http_server_config.headers.model_dump(by_alias=True)
        return {name: value for name, value in given.items() if value}


def load_web_config(path: Path) -> tuple[WebConfig, Stamps]:
    """Returns the web config in `path`, and the stamps of `path` and the files that it names.

    Relative paths in it are relative to its folder. Raises ConfigError with all problems, including
    those of the files that it names, with the line of `path` that names them.
    """
    # Before reading, so that the next check sees a change in between.
    stamps = read_stamps([path])
    config = load(path, WebConfig)
    tls = config.tls_server_config
    for file in (tls.cert_file, tls.key_file, tls.client_ca_file):
        if file is not None:
            stamps[file.path] = file.stamp
    return config, stamps


def read_stamps(paths: Iterable[Path]) -> Stamps:
    """Returns the current stamps of `paths`."""
    return {path: read_stamp(path) for path in paths}
