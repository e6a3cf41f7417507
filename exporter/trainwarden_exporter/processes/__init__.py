"""The processes of the box: read from /proc, sorted by worker, followed until they end."""
