"""Tokens of incoming requests, and credentials of outgoing requests."""
