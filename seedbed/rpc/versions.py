"""Versions of the wire. Neighbours work together, so that a release can be rolled out."""

# 2: Notice announces late answers. 1: without it.
PROTOCOL_VERSION = 2
OLDEST_PROTOCOL_VERSION = 1

# Between a learner and a replay shard.
REPLAY_PROTOCOL_VERSION = 1
OLDEST_REPLAY_PROTOCOL_VERSION = 1

# Between learners. They are of one release, so there is no older one.
GOSSIP_PROTOCOL_VERSION = 2
