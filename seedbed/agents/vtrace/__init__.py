"""V-trace actor-critic (IMPALA)."""
