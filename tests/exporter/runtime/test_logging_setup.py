"""One line for each record, as logfmt or JSON."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from trainwarden_exporter.runtime import logging_setup

log = logging.getLogger("barn.door")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, access = logging.getLogger(), logging.getLogger("aiohttp.access")
    handlers, level, disabled = root.handlers, root.level, access.disabled
    yield
    root.handlers, access.disabled = handlers, disabled
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def configured(level: logging_setup.Level, form: logging_setup.Format) -> io.StringIO:
    stream = io.StringIO()
    logging_setup.configure(level, form, stream=stream)
    return stream


def at_the_epoch(record: logging.LogRecord) -> bool:
    record.created = 1_700_000_000.1234
    return True


@pytest.fixture
def fixed_time() -> Iterator[None]:
    log.addFilter(at_the_epoch)
    yield
    log.removeFilter(at_the_epoch)


@pytest.mark.usefixtures("fixed_time")
def test_a_record_is_a_line_of_logfmt() -> None:
    stream = configured("info", "logfmt")

    log.warning(
        "door %s", "open", extra={"door": 3, "by": "the wind", "locked": False, "who": None}
    )

    assert stream.getvalue() == (
        'ts=2023-11-14T22:13:20.123Z level=warning logger=barn.door msg="door open" '
        'door=3 by="the wind" locked=false who=null\n'
    )


@pytest.mark.usefixtures("fixed_time")
def test_a_record_is_a_line_of_json() -> None:
    stream = configured("info", "json")

    log.info("door open", extra={"door": 3, "path": pytest, "nested": {"a": [1]}})

    line = json.loads(stream.getvalue())
    assert list(line) == ["ts", "level", "logger", "msg", "door", "path", "nested"]
    assert line["ts"] == "2023-11-14T22:13:20.123Z"
    assert (line["door"], line["nested"]) == (3, {"a": [1]})
    assert line["path"] == str(pytest)


@pytest.mark.parametrize("form", logging_setup.FORMATS)
def test_an_exception_is_one_field_of_one_line(form: logging_setup.Format) -> None:
    stream = configured("info", form)
    hinges: dict[str, int] = {}
    try:
        hinges["hinge"]
    except KeyError:
        log.exception("broken")
    (line,) = stream.getvalue().splitlines()

    if form == "json":
        assert "KeyError: 'hinge'" in json.loads(line)["exception"]
    else:
        assert r'exception="Traceback (most recent call last):\n' in line
        assert "KeyError: 'hinge'" in line


def test_an_exception_can_be_given_as_it_is() -> None:
    stream = configured("info", "json")
    log.error("broken", exc_info=ValueError("hinge"))
    assert json.loads(stream.getvalue())["exception"] == "ValueError: hinge"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("two\nlines", r'"two\nlines"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("grün", "grün"),
        ("caf\udce9", r'"caf\udce9"'),
        (1.5, "1.5"),
        (True, "true"),
    ],
)
def test_no_value_breaks_out_of_its_field(value: object, written: str) -> None:
    stream = configured("info", "logfmt")
    log.info("x", extra={"fact": value})
    assert stream.getvalue().rstrip("\n").endswith(f" fact={written}")


def test_no_fact_takes_the_place_of_what_every_line_has() -> None:
    stream = configured("info", "json")
    log.info("x", extra={"level": "deep", "ts": "never", "event": "rain"})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["level_"], line["ts_"]) == ("info", "deep", "never")
    assert line["event"] == "rain"


def test_a_key_that_is_no_word_does_not_break_the_line() -> None:
    stream = configured("info", "logfmt")
    log.info("x", extra={"two words=1": 2})
    assert stream.getvalue().endswith(" two_words_1=2\n")


def test_what_is_below_the_level_is_not_logged() -> None:
    stream = configured("warning", "logfmt")
    log.info("quiet")
    assert stream.getvalue() == ""


def test_requests_are_not_logged_and_warnings_are() -> None:
    stream = configured("debug", "logfmt")
    logging.getLogger("aiohttp.access").info("GET /metrics")
    assert stream.getvalue() == ""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old door", DeprecationWarning, stacklevel=1)
    assert "logger=py.warnings" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_the_last_configuration_wins() -> None:
    first = configured("info", "logfmt")
    second = configured("info", "logfmt")
    log.info("x")
    assert first.getvalue() == ""
    assert second.getvalue()


def test_without_a_stream_it_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.configure()
    log.info("x")
    assert " msg=x" in capsys.readouterr().err
