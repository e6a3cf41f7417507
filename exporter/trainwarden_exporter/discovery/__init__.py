"""Looks at a running box and proposes the configuration that watches it."""
