"""Logs: following files, matching lines and counting them."""
