"""A2C: synchronous advantage actor-critic."""
