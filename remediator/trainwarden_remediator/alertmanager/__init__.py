"""The formats of Alertmanager: its webhook and its API."""
