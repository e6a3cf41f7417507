"""Observes a training box and publishes what it sees to Prometheus."""

__version__ = "0.1.0.dev0"
