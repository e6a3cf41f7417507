from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwarden_exporter.inference import api_keys
from trainwarden_exporter.inference.api_keys import KeyFile, environment_key, parse_key


def test_surrounding_space_is_not_part_of_a_key() -> None:
    key = parse_key("  abc \n")
    assert key is not None
    assert key.authorization == "Bearer abc"


def test_an_empty_value_is_no_key() -> None:
    assert parse_key(" \n") is None


@pytest.mark.parametrize("text", ["a\nb", "a\r\nX: y", "schlüssel", "a\0", "x" * 5000])
def test_characters_that_a_header_cannot_contain_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not one line of printable ASCII"):
        parse_key(text)


def test_a_key_is_not_displayed() -> None:
    assert "abc" not in repr(parse_key("abc"))


def test_a_key_of_the_environment() -> None:
    key = environment_key("KEY", {"KEY": "abc"})()
    assert key is not None
    assert key.authorization == "Bearer abc"
    assert environment_key("KEY", {})() is None


def test_an_invalid_key_in_the_environment_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert environment_key("KEY", {"KEY": "top\nsecret"})() is None
    assert "invalid API key" in caplog.text
    assert "secret" not in caplog.text


def test_a_file_is_read_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    monkeypatch.setattr(api_keys, "INTERVAL", 0.01)
    path = tmp_path / "key"
    path.write_text("first\n")
    file = KeyFile(path)
    file.wait()

    def is_now(wanted: str | None) -> bool:
        key = file()
        return (key and key.authorization) == wanted

    assert is_now("Bearer first")
    path.write_text("second\n")
    wait_until(lambda: is_now("Bearer second"))
    path.unlink()
    wait_until(lambda: is_now(None))
    path.write_text("third\n")
    wait_until(lambda: is_now("Bearer third"))
    file.close()
