"""Boards without Grafana: their queries asked of a running Prometheus, their panels drawn."""
