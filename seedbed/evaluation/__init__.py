"""Evaluation of a policy apart from training."""
