"""What `trainwarden run` does before a start: several commands in order, and waiting for the host.

It uses the exporter's readers, so it needs more memory than what stays with a run.
"""
