"""Rollouts: batches from the rollout side to the trainer, and weights back."""
