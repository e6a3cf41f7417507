"""What the whole suite shares: the real Prometheus and Alertmanager."""

from __future__ import annotations

import pytest

import stack


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="write the golden files anew, then look at them",
    )


@pytest.fixture(scope="session")
def binaries() -> stack.Binaries:
    """The programs from PATH, else from the distribution's packages, unpacked once."""
    return stack.find_binaries()
