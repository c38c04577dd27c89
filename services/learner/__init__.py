"""The learner: central inference, unrolls, training."""
