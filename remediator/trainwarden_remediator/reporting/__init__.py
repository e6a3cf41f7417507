"""Tells a person what happened: one incident, or a night of them, as Markdown."""
