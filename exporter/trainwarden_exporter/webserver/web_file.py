"""Interface of the web configuration file for reloads and status."""

from __future__ import annotations

from typing import Protocol


class WebConfigFile(Protocol):
    """Reloads the web configuration file; implemented by `WebServer`."""

    @property
    def last_reload_successful(self) -> bool | None:
        """None without a file."""

    async def reload(self) -> None:
        """Raises ConfigError."""
