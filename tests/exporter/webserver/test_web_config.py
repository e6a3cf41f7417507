from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.web_config import (
    WebConfig,
    load_web_config,
    parse_go_duration,
    read_stamps,
)

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority, Pair

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
Load = Callable[[str], WebConfig]
Complain = Callable[[str], str]


@pytest.fixture
def web_file(tmp_path: Path) -> Path:
    return tmp_path / "web.yml"


@pytest.fixture
def load(web_file: Path) -> Load:
    def read(text: str) -> WebConfig:
        web_file.write_text(text)
        return load_web_config(web_file)[0]

    return read


@pytest.fixture
def complaint(load: Load) -> Complain:
    """The problems of a text, a line each, without the path."""

    def read(text: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text)
        lines = [f"{p.line}: {p.where}: {p.message}" for p in caught.value.problems]
        return "\n".join(lines)

    return read


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "tls_server_config:\nbasic_auth_users:\n", "tls_server_config: {}"]
)
def test_an_empty_file_means_plain_http_for_everybody(load: Load, text: str) -> None:
    config = load(text)
    assert config.tls is None
    assert config.basic_auth_users == {}
    assert config.headers == {}
    assert config.rate_limit.interval == 0


def test_a_file_that_is_not_there_is_an_error(web_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"web\.yml: No such file"):
        load_web_config(web_file)


def test_an_unknown_key_is_named_with_its_line(complaint: Complain) -> None:
    assert complaint("basic_auth_users: {}\nbasic_auth_user: {}\n") == (
        "2: basic_auth_user: unknown key (did you mean basic_auth_users?)"
    )


class TestUsers:
    def test_bcrypt_hashes_of_htpasswd_are_taken_as_they_stand(self, load: Load) -> None:
        text = f"basic_auth_users:\n  alice: {HASH}\n  bob: {HASH.replace('2y', '2b')}\n"
        assert load(text).basic_auth_users == {"alice": HASH, "bob": HASH.replace("2y", "2b")}

    @pytest.mark.parametrize(
        "bad",
        ["doe", HASH[:-1], HASH + "a", HASH.replace("$10$", "$03$"), HASH.replace("$10$", "$32$")],
    )
    def test_what_is_no_hash_is_refused_and_not_repeated(
        self, complaint: Complain, bad: str
    ) -> None:
        reported = complaint(f"basic_auth_users:\n  alice: {HASH}\n  john: {bad}\n")
        assert reported.startswith("3: basic_auth_users.john: not a bcrypt hash: create it with")
        assert bad not in reported

    def test_a_salt_that_bcrypt_itself_refuses_is_found_at_load(self, complaint: Complain) -> None:
        bad = HASH.replace(".zou", ".zAu")
        bad = "$2y$10$" + "A" * 22 + bad[29:]
        assert complaint(f"basic_auth_users:\n  john: {bad}\n") == (
            "2: basic_auth_users.john: not a bcrypt hash: Invalid salt"
        )

    def test_a_printed_config_does_not_show_hashes(self, load: Load) -> None:
        assert HASH not in repr(load(f"basic_auth_users: {{alice: {HASH}}}"))


class TestHeaders:
    def test_the_five_headers_of_the_format_are_taken(self, load: Load) -> None:
        given = {
            "Content-Security-Policy": "default-src 'self' *.test.example.net",
            "X-Frame-Options": "deny",
            "X-Content-Type-Options": "nosniff",
            "X-XSS-Protection": 1,
            "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
        }
        lines = "".join(f'    {name}: "{value}"\n' for name, value in given.items())
        config = load(f"http_server_config:\n  http2: false\n  headers:\n{lines}")
        assert config.headers == {name: str(value) for name, value in given.items()}

    def test_a_number_is_a_header_value_too_and_a_blank_one_is_left_out(self, load: Load) -> None:
        config = load("http_server_config: {headers: {X-XSS-Protection: 1, X-Frame-Options: ''}}\n")
        assert config.headers == {"X-XSS-Protection": "1"}

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            ("X-Frame-Options: foo", "'', 'deny' or 'sameorigin'"),
            ("X-Content-Type-Options: sniff", "'' or 'nosniff'"),
            ("Content-Type: foo", "unknown key"),
            (r'X-XSS-Protection: "a\r\nb"', "has a character that is not allowed in a header"),
        ],
    )
    def test_other_headers_and_values_are_refused(
        self, complaint: Complain, header: str, message: str
    ) -> None:
        reported = complaint(f"http_server_config:\n  headers:\n    {header}\n")
        name = header.partition(":")[0]
        assert reported.startswith(f"3: http_server_config.headers.{name}: ")
        assert reported.endswith(message)


class TestRateLimit:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("1s", 1), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25), ("10us", 1e-5), (0, 0)],
    )
    def test_go_durations_are_read(self, text: object, seconds: float) -> None:
        assert parse_go_duration(text) == pytest.approx(seconds)

    @pytest.mark.parametrize("text", ["", "5", 5, "1d", "-1s", "s", True, False, None, [1]])
    def test_anything_else_is_no_go_duration(self, text: object) -> None:
        with pytest.raises(ValueError, match="not a duration"):
            parse_go_duration(text)

    def test_interval_and_burst_are_taken(self, load: Load) -> None:
        limit = load("rate_limit: {interval: 1s, burst: 20}").rate_limit
        assert (limit.interval, limit.burst) == (1.0, 20)

    def test_a_burst_of_none_would_refuse_everything_and_is_an_error(
        self, complaint: Complain
    ) -> None:
        assert complaint("rate_limit:\n  interval: 1s\n  burst: 0\n") == (
            "3: rate_limit.burst: 0 would reject every request; at least 1"
        )


class TestStamps:
    def test_the_stamps_name_the_file_and_all_it_refers_to(
        self, web_file: Path, server_pair: Pair, authority: Authority
    ) -> None:
        web_file.write_text(
            f"tls_server_config:\n  cert_file: {server_pair.cert_file}\n"
            f"  key_file: {server_pair.key_file}\n"
            f"  client_ca_file: {authority.cert_file}\n  client_auth_type: VerifyClientCertIfGiven"
        )
        _, stamps = load_web_config(web_file)
        files = {web_file, server_pair.cert_file, server_pair.key_file, authority.cert_file}
        assert set(stamps) == files
        assert stamps == read_stamps(files)

    def test_a_file_replaced_by_one_of_equal_size_and_time_has_another_stamp(
        self, tmp_path: Path
    ) -> None:
        path, other = tmp_path / "a", tmp_path / "b"
        path.write_text("one")
        other.write_text("two")
        os.utime(path, ns=(1, 1))
        os.utime(other, ns=(1, 1))
        before = read_stamps([path])
        other.replace(path)
        assert read_stamps([path]) != before

    def test_relative_paths_are_relative_to_the_file(
        self, tmp_path: Path, web_file: Path, server_pair: Pair
    ) -> None:
        (tmp_path / "own.crt").write_text(server_pair.cert)
        (tmp_path / "own.key").write_text(server_pair.key)
        web_file.write_text("tls_server_config: {cert_file: own.crt, key_file: own.key}")
        config, stamps = load_web_config(web_file)
        assert config.tls is not None
        assert tmp_path / "own.crt" in stamps
