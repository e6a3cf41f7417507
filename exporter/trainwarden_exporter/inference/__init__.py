"""Inference servers: asked in three tiers how they are, because each of them lies in one."""
