"""Heartbeats: touched files and posted beats."""
