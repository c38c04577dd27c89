"""Versions of the wire. Neighbours work together, so that a release can be rolled out."""

# 2: Notice announces late answers. 1: without it.
PROTOCOL_VERSION = 2
OLDEST_PROTOCOL_VERSION = 1
