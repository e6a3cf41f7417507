"""What passes between rollout side and trainer: batches one way, weights the other."""
