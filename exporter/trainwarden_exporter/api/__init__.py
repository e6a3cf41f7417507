"""What the exporter serves, and the command that serves it."""
