"""Processes of the host: read from /proc, assigned to workers, followed until they end."""
