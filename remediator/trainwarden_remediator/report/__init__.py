"""Markdown reports of one incident or of all incidents of a night."""
