"""The journal: an SQLite file of alerts, decisions, actions and outcomes."""
