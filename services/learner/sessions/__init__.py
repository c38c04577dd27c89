"""The learner's end of the wire: streams, sessions, and the batches that they join."""
