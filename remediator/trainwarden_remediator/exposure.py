"""Refuses to listen where whoever reaches the port could do what only the operator may."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.serving.webconfig import WebConfig, load_web_config
from trainwarden_exporter.serving.webserver import parse_listen_address
from trainwarden_remediator.config import Config


def check_exposure(
    config: Config, path: Path, *, listen_address: str, web_config_file: Path | None
) -> None:
    """Raise ConfigError where `config`, read from `path`, would be served to people unknown."""
    web = WebConfig() if web_config_file is None else load_web_config(web_config_file)[0]
    if said := objection(config, web, listen_address):
        where, why = said
        raise ConfigError(Problem(path, None, where, why))


def objection(config: Config, web: WebConfig, listen_address: str) -> tuple[str, str] | None:
    """What must not be so, and the key of the configuration it is about; None where all is well."""
    demanded = web.tls is not None and web.tls.demands_certificate
    if config.client_certificates and not demanded:
        return "client_certificates", (
            "the file of --web.config.file demands none: it takes "
            "client_auth_type: RequireAndVerifyClientCert"
        )
    asks = config.token_file is not None or demanded or bool(web.basic_auth_users)
    if asks or config.insecure or is_loopback(listen_address):
        return None
    return "token_file", (
        f"needed to listen on {listen_address}, beyond this machine: nobody would be asked who "
        "they are (or users or client certificates in the file of --web.config.file, or "
        "`insecure: true`)"
    )


def is_loopback(listen_address: str) -> bool:
    """Whether only this machine can reach it."""
    host, _ = parse_listen_address(listen_address)
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
