"""PPO: actor-critic with a clipped ratio of probabilities."""
