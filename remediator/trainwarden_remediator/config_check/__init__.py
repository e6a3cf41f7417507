"""Checks remediator.yml against the alerting rules and the Alertmanager configuration."""
