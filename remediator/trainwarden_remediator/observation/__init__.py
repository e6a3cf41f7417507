"""Observation before a decision: the exporter's page, Alertmanager, this host."""
