"""Hosts of one learner: their agreement on each step, and what they have counted together."""
