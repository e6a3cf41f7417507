"""Containers of a run: starts and exits."""
