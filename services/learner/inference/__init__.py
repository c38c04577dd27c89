"""Inference thread of the learner."""
