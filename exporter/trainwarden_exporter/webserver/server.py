"""Web server of both programs; reloads its web config file when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from aiohttp import web

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.connections import ConnectionTable
from trainwarden_exporter.webserver.listener import Listener
from trainwarden_exporter.webserver.middleware import Admission
from trainwarden_exporter.webserver.sockets import bind, is_loopback, parse_listen_address
from trainwarden_exporter.webserver.tls import build_context, certificate_warning
from trainwarden_exporter.webserver.web_config import (
    Stamps,
    WebConfig,
    load_web_config,
    read_stamps,
)

__all__ = ["WebServer", "parse_listen_address"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""Seconds between two checks of the files. A change takes effect when two checks see the same."""

OPEN_PATHS = frozenset({"/-/healthy", "/-/ready"})

DRAIN_SECONDS = 5.0
"""Seconds that `close` waits for running requests."""


class WebServer:
    """Listens, with TLS and authentication as a web config file of the exporter-toolkit says.

    The file, and the certificates, keys and CAs that it names, are reloaded when they change. If a
    file is invalid, the last valid configuration stays in force. Requests are authorised before
    `app` sees them, except for the routes at OPEN_PATHS, which need no credential, and those at
    `own_credential_paths()`, which check their own (a required client certificate is required there
    too). Forms on pages of this server may be sent to `form_paths`. On a loopback address, the host
    in a request must be a loopback name or one of `external_names`.

    A connection made under earlier TLS settings is closed after its next response. So a rotated
    certificate or CA is in force everywhere by the next scrape, and no request fails because of it.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        listen_address: str,
        config_file: Path | None,
        own_credential_paths: Callable[[], frozenset[str]] = frozenset,
        external_names: Collection[str] = (),
        form_paths: frozenset[str] = frozenset(),
        check: Callable[[WebConfig], None] = lambda _: None,
    ) -> None:
        """Wraps `app`, which must not be running yet. Raises ValueError for an invalid address.

        `check` is called with each configuration before it is in force, and raises ConfigError to
        refuse it.
        """
        parse_listen_address(listen_address)
        self._listen_address = listen_address
        self._config_file = config_file
        self._check = check
        self._config = WebConfig()
        self._admission = Admission(
            OPEN_PATHS,
            own_credential_paths=own_credential_paths,
            host_names=frozenset(external_names) if is_loopback(listen_address) else None,
            form_paths=form_paths,
        )
        self._admission.guard(app)
        self._runner = web.AppRunner(app, shutdown_timeout=DRAIN_SECONDS)
        self._connections = ConnectionTable()
        self._sockets: list[socket.socket] = []
        self._listener: Listener | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._loaded_stamps: Stamps = {}
        self._observed_stamps: Stamps = {}
        self._failure: str | None = None
        self._loaded = False
        self._closed = False

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each listening socket, as bound; empty while it does not listen."""
        return tuple(sock.getsockname()[:2] for sock in self._sockets)

    @property
    def last_reload_successful(self) -> bool | None:
        """Whether the newest content of the web config file is in force; None without a file."""
        return None if self._config_file is None else self._loaded and self._failure is None

    async def start(self) -> None:
        """Reads the web config file, binds, starts the app, and listens.

        Raises ConfigError if the web config file is invalid, OSError if the address is taken or not
        an address of this host, and the exceptions of the app's start. No socket is left open then.
        """
        try:
            config = await self._read()
            self._sockets = await bind(self._listen_address)
            await self._runner.setup()
            self._listener = Listener(self._sockets, self._connections, self._app_server)
            self._apply(config)
            self._listener.start()
        except BaseException:
            await self.close()
            raise
        if self._config_file is not None:
            self._watcher = asyncio.create_task(self._watch(), name="web config watcher")

    async def reload(self) -> None:
        """Loads the files as they are now.

        Raises ConfigError if they are invalid; the last valid configuration then stays in force.
        """
        if self._config_file is None:
            return
        async with self._lock:
            await self._reload_locked()

    async def check_files(self) -> None:
        """Checks the files once, and loads them if they have changed and stopped changing.

        Logs each different failure once. After a failure the next check tries again, because a file
        that is missing may appear later.
        """
        if self._config_file is None:
            return
        async with self._lock:
            stamps = await asyncio.to_thread(read_stamps, self._loaded_stamps)
            stable, self._observed_stamps = stamps == self._observed_stamps, stamps
            if stable and (stamps != self._loaded_stamps or self._failure is not None):
                with contextlib.suppress(ConfigError):
                    await self._reload_locked()

    async def close(self) -> None:
        """Stops listening, drains requests in progress, cleans the app up; idempotent."""
        if self._closed:
            return
        self._closed = True
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            sock.close()
        await self._runner.cleanup()
        self._connections.abort_all()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check_files()
            except Exception as error:  # noqa: BLE001 - without its watcher a certificate would expire
                self._record_failure(error)

    async def _reload_locked(self) -> None:
        try:
            config = await self._read()
            self._apply(config)
        except ConfigError as error:
            self._record_failure(error)
            raise
        recovered, self._failure = self._failure is not None, None
        log.info(
            "web config reloaded",
            extra={
                "file": str(self._config_file),
                "tls": config.tls is not None,
                "users": len(config.basic_auth_users),
                "recovered": recovered,
            },
        )

    def _record_failure(self, error: Exception) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            log.error(
                "web config invalid, the last valid one stays in force",
                extra={"file": str(self._config_file), "error": self._failure},
            )

    async def _read(self) -> WebConfig:
        if self._config_file is None:
            return WebConfig()
        config, stamps = await asyncio.to_thread(load_web_config, self._config_file)
        self._check(config)
        self._loaded_stamps = self._observed_stamps = stamps
        self._loaded = True
        return config

    def _apply(self, config: WebConfig) -> None:
        if self._listener is None:
            raise RuntimeError("the web server is closed")
        context = self._listener.context
        if config.tls != self._config.tls:
            context = None
            if config.tls is not None:
                context = build_context(config.tls)
                if (reason := certificate_warning(context, config.tls)) is not None:
                    log.warning("clients will reject the certificate", extra={"error": reason})
        self._listener.context = context
        self._config = config
        self._admission.apply(config, context)

    def _app_server(self) -> web.Server:
        if self._runner.server is None:
            raise RuntimeError("the web server is closed")
        return self._runner.server
