"""The configuration of each restart method, one module per method."""
