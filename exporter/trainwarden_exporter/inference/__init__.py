"""Inference servers: probes, metrics and health in three tiers."""
