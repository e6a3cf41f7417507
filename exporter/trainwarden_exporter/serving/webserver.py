"""The web server of both programs, which follows its web config file as that changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from ssl import SSLContext

from aiohttp import web

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.serving.admission import Admission
from trainwarden_exporter.serving.listening import (
    bind,
    open_listeners,
    parse_listen_address,
    retire,
)
from trainwarden_exporter.serving.tls import build_context, doubt
from trainwarden_exporter.serving.webconfig import Stamps, WebConfig, load_web_config, read_stamps

__all__ = ["WebServer", "parse_listen_address"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are looked at; a change is taken up when two looks in a row agree on it."""

HANDSHAKE_SECONDS = 10.0
KEEPALIVE_SECONDS = 120.0
"""An idle connection, or one that has not finished its request head, is closed after this long."""

DRAIN_SECONDS = 5.0
"""How long `close` waits for requests that are being answered."""


class WebServer:
    """Listens, with TLS and authentication by an exporter-toolkit web config file.

    Certificates, keys, CAs, users and the file itself are followed while it runs, without a
    restart; a broken file leaves the last good one in force. Who may ask for what is decided before
    `app` sees a request; the routes of `app` at `open_paths` answer everybody, and those at
    `own_credential_paths` see to the credential themselves, but for a client certificate that is
    demanded.

    A connection made under earlier TLS settings is answered once more and then closed, so a
    rotated certificate or CA is in force everywhere by the next scrape and no request fails for it.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        listen_address: str,
        config_file: Path | None,
        open_paths: frozenset[str] = frozenset({"/-/healthy", "/-/ready"}),
        own_credential_paths: frozenset[str] = frozenset(),
    ) -> None:
        """Wrap `app`, which must not be running yet. Raises ValueError for a bad address."""
        parse_listen_address(listen_address)
        self._listen_address = listen_address
        self._config_file = config_file
        self._config = WebConfig()
        self._admission = Admission(open_paths, own_credential_paths=own_credential_paths)
        self._admission.guard(app)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            shutdown_timeout=DRAIN_SECONDS,
        )
        self._sockets: list[socket.socket] = []
        self._listeners: list[asyncio.Server] = []
        self._watcher: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._taken: Stamps = {}
        self._seen: Stamps = {}
        self._failure: str | None = None
        self._loaded = False
        self._closed = False

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each listening socket, as bound; empty when it does not listen."""
        return tuple(sock.getsockname()[:2] for sock in self._sockets)

    @property
    def last_reload_successful(self) -> bool | None:
        """Whether the web config file as it stands is in force; None without such a file."""
        return None if self._config_file is None else self._loaded and self._failure is None

    @property
    def secured(self) -> bool:
        """Whether strangers are kept out, by client certificates or users; False before `start`."""
        tls = self._config.tls
        return bool(self._config.basic_auth_users) or (tls is not None and tls.demands_certificate)

    async def start(self) -> None:
        """Read the web config file, bind, start the app, listen.

        Raises ConfigError for a web config file that cannot be used, OSError when the address is
        taken or not of this machine, and whatever the app's start raises; nothing is left open.
        """
        try:
            config = await self._read()
            self._sockets = await bind(self._listen_address)
            await self._runner.setup()
            await self._adopt(config)
        except BaseException:
            await self.close()
            raise
        if self._config_file is not None:
            self._watcher = asyncio.create_task(self._watch(), name="web config watcher")

    async def reload(self) -> None:
        """Take up the files as they are now.

        Raises ConfigError when they cannot be used, OSError when a listener cannot be opened; the
        last good ones then stay in force.
        """
        if self._config_file is None:
            return
        async with self._turn:
            await self._take()

    async def check_files(self) -> None:
        """Look at the files once, and take them up when they have changed and stopped changing.

        What cannot be used is logged, once for each different failure, and tried again at every
        look, since what is missing may be a file that appears later.
        """
        if self._config_file is None:
            return
        async with self._turn:
            stamps = await asyncio.to_thread(read_stamps, self._taken)
            settled, self._seen = stamps == self._seen, stamps
            if settled and (stamps != self._taken or self._failure is not None):
                with contextlib.suppress(ConfigError):
                    await self._take()

    async def close(self) -> None:
        """Stop listening, give requests in progress a while, clean the app up; idempotent."""
        if self._closed:
            return
        self._closed = True
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])
        listeners, self._listeners = self._listeners, []
        await retire(listeners)
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            sock.close()
        await self._runner.cleanup()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.check_files()
            except Exception as error:  # noqa: BLE001 - without its watcher a certificate would expire
                self._fail(error)

    async def _take(self) -> None:
        try:
            config = await self._read()
            await self._adopt(config)
        except (ConfigError, OSError) as error:
            self._fail(error)
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

    def _fail(self, error: Exception) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            log.error(
                "web config not usable, the last good one stays in force",
                extra={"file": str(self._config_file), "error": self._failure},
            )

    async def _read(self) -> WebConfig:
        if self._config_file is None:
            return WebConfig()
        config, stamps = await asyncio.to_thread(load_web_config, self._config_file)
        self._taken = self._seen = stamps
        self._loaded = True
        return config

    async def _adopt(self, config: WebConfig) -> None:
        context = self._admission.context
        if not self._listeners or config.tls != self._config.tls:
            context = None
            if config.tls is not None:
                context = build_context(config.tls)
                if (reason := doubt(context, config.tls)) is not None:
                    log.warning("clients will refuse the certificate", extra={"error": reason})
            await self._listen(context)
        self._config = config
        self._admission.adopt(config, context)

    async def _listen(self, context: SSLContext | None) -> None:
        """Put listeners with `context` in the place of those there are.

        Old and new share one queue of the kernel, so no connection is refused between them;
        connections that were accepted are not touched.
        """
        if self._runner.server is None:
            raise RuntimeError("the web server is closed")
        fresh = await open_listeners(
            self._sockets,
            self._admission.crowd.of(self._runner.server),
            context,
            handshake_seconds=HANDSHAKE_SECONDS,
        )
        stale, self._listeners = self._listeners, fresh
        await retire(stale)
