"""A policy that plain Keras loads."""
