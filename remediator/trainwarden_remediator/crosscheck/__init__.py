"""Holds remediator.yml against the rules and the Alertmanager that it is there for."""
