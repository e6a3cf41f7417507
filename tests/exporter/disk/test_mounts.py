from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.disk.mounts import (
    Mount,
    is_sandboxed,
    parse_mount_id,
    parse_mounts,
    read_mount,
)

if TYPE_CHECKING:
    from tests.exporter.conftest import Mount as DoMount

TABLE = textwrap.dedent("""\
    27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
    36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue
    40 27 0:30 / /data\\040of\\134ours rw shared:7 - nfs4 server:/export\\040one rw,vers=4.2
    41 27 0:31 / /frozen ro,relatime - xfs /dev/sdb rw
    42 27 0:32 / /broken rw,relatime - ext4 /dev/sdc ro,errors=remount-ro
    43 27 0:33 / /odd rw - tmpfs none
    """)


def test_each_mount_is_read_with_whatever_optional_fields_it_has() -> None:
    mounts = parse_mounts(TABLE)
    assert mounts[27] == Mount(27, "/", "/dev/vda", "ext4", read_only=False)
    assert mounts[36] == Mount(36, "/mnt2", "/dev/root", "ext3", read_only=False)
    assert mounts[43] == Mount(43, "/odd", "none", "tmpfs", read_only=False)


def test_what_is_escaped_is_shown_as_it_is() -> None:
    assert parse_mounts(TABLE)[40].point == "/data of\\ours"
    assert parse_mounts(TABLE)[40].device == "server:/export one"


def test_a_mount_or_its_file_system_is_read_only() -> None:
    mounts = parse_mounts(TABLE)
    assert [mounts[number].read_only for number in (27, 41, 42)] == [False, True, True]


SANDBOX = textwrap.dedent("""\
    90 89 254:0 / / ro,relatime - ext4 /dev/vda rw,discard
    91 90 0:31 / /frozen ro,relatime - xfs /dev/sdb rw
    92 90 0:32 / /broken ro,relatime - ext4 /dev/sdc ro,errors=remount-ro
    93 90 0:77 / /its/own ro,relatime - tmpfs none rw
    """)


@pytest.mark.parametrize(
    ("number", "only_for_us"), [(90, True), (91, False), (92, False), (93, False)]
)
def test_what_only_our_sandbox_makes_read_only_is_distinguished_from_what_is(
    number: int, *, only_for_us: bool
) -> None:
    assert is_sandboxed(number, SANDBOX, TABLE) is only_for_us


def test_outside_of_a_sandbox_a_mount_is_what_it_is() -> None:
    assert not is_sandboxed(41, TABLE, TABLE)
    assert not is_sandboxed(90, SANDBOX, "")  # process 1 is hidden


def test_the_number_of_a_mount_is_in_the_facts_of_a_descriptor() -> None:
    assert parse_mount_id("pos:\t0\nflags:\t010000000\nmnt_id:\t27\nino:\t2\n") == 27
    assert parse_mount_id("pos:\t0\n") == -1


def test_the_mount_of_an_open_folder_is_found() -> None:
    descriptor = os.open("/proc", os.O_PATH)
    try:
        found = read_mount(descriptor)
    finally:
        os.close(descriptor)
    assert found is not None
    assert (found.point, found.fstype) == ("/proc", "proc")


def test_of_mounts_that_hide_each_other_the_visible_one_is_meant(
    tmp_path: Path, mount: DoMount
) -> None:
    point = tmp_path / "twice"
    mount(point, "-t", "tmpfs", "below")
    inside = point / "here"
    mount(inside, "-t", "tmpfs", "above it")
    (tmp_path / "link").symlink_to(inside)
    descriptor = os.open(tmp_path / "link", os.O_PATH)
    try:
        found = read_mount(descriptor)
    finally:
        os.close(descriptor)
    assert found is not None
    assert (found.point, found.device) == (str(inside), "above it")
