"""The HTML status page at /."""
