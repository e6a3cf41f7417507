"""The remediator in exporter.yml: where the status page asks it."""

from __future__ import annotations

from trainwarden_exporter.inference.config import TlsConfig, Url
from trainwarden_exporter.yamlfile import Section


class RemediatorConfig(Section):
    """Where the status page has alerts and actions from. No metric and no collector asks there."""

    url: Url
    """Where the remediator listens, such as `http://127.0.0.1:10978`."""

    tls: TlsConfig | None = None
    """How the connection to a server with https is checked."""
