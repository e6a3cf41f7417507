"""Inspects a running host and proposes a configuration for it."""
