"""Reads YAML files into models and reports each error with its line."""
