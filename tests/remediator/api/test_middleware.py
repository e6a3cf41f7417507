"""Who is let in, while the disk of the token file does not answer."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from tests.remediator.api.test_webhook import post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery


async def test_a_token_file_whose_disk_hangs_stops_neither_webhooks_nor_the_program(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path == box.token_file:
            assert answers.wait(60)
        return real(path, **options)

    loop = asyncio.get_running_loop()
    async with running(box) as (client, _):
        monkeypatch.setattr(Path, "stat", stat)
        try:
            began = loop.time()
            assert (await post(client, delivery(box.alert()))).status == 200
            wrong = {"Authorization": "Bearer the-token-of-somebody-else"}
            assert (await post(client, delivery(), wrong)).status == 401
            assert (await client.get("/-/healthy")).status == 200
            assert loop.time() - began < 10
        finally:
            answers.set()
