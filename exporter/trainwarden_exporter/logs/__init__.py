"""Logs: what is followed in them, what their lines tell, and how often."""
