"""The fixture that most tests of notifications use."""

from tests.remediator.notify.test_notifier import calling

__all__ = ["calling"]
