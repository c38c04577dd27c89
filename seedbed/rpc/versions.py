"""Versions of the protocols, and the metadata of their calls."""

# Between an actor and a learner. Neighbouring versions work together (docs/wire.md).
PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1

# Trailing metadata of a learner's rejection: a `StreamError`.
ERROR_KEY = "seedbed-error-bin"

# Between a learner and a replay shard.
REPLAY_PROTOCOL_VERSION = 1
OLDEST_REPLAY_PROTOCOL_VERSION = 1

# Between learners. All learners of a run have one release, so no other version is accepted.
GOSSIP_PROTOCOL_VERSION = 1
