"""Refuses to serve an address beyond this host without authentication."""

from __future__ import annotations

from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.webserver.sockets import is_loopback
from trainwarden_exporter.webserver.web_config import WebConfig, load_web_config
from trainwarden_remediator.config.schema import Config


def check_exposure(
    config: Config, path: Path, *, listen_address: str, web_config_file: Path | None
) -> None:
    """Raises ConfigError if `config`, read from `path`, would be served without authentication."""
    web = WebConfig() if web_config_file is None else load_web_config(web_config_file)[0]
    if problem := exposure_problem(config, web, listen_address):
        where, why = problem
        raise ConfigError(Problem(path, None, where, why))


def check_web_config(web: WebConfig, config: Config, path: Path, *, listen_address: str) -> None:
    """Raises ConfigError if `config` would be served without authentication because of `web`.

    `path` is the file of `web`.
    """
    if problem := exposure_problem(config, web, listen_address):
        raise ConfigError(Problem(path, None, "", problem[1]))


def exposure_problem(config: Config, web: WebConfig, listen_address: str) -> tuple[str, str] | None:
    """Returns the configuration key and the text of a problem, or None."""
    demanded = web.tls is not None and web.tls.demands_certificate
    if config.client_certificates and not demanded:
        return "client_certificates", (
            "the file of --web.config.file requires no client certificates: set "
            "client_auth_type: RequireAndVerifyClientCert"
        )
    authenticates = config.token_file is not None or demanded or bool(web.basic_auth_users)
    if authenticates or config.insecure or is_loopback(listen_address):
        return None
    return "token_file", (
        f"required to listen on {listen_address}, which other machines can reach without "
        "authentication (alternatives: users or client certificates in the file of "
        "--web.config.file, or `insecure: true`)"
    )
