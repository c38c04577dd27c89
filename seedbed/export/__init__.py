"""Export of a policy that plain Keras loads."""
