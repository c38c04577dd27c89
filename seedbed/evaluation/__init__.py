"""Playing a policy apart from training."""
