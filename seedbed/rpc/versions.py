"""Versions of the protocols. Neighbouring versions work together, so that releases roll out."""

# Between an actor and a learner. 5: several actions, and continuous ones. 4: unrolls of actors that
# choose their actions. 3: Hello as metadata. 2: Notice announces late answers. 1: without Notice.
PROTOCOL_VERSION = 5
OLDEST_PROTOCOL_VERSION = 1
# Oldest version that carries spaces other than one image or vector and one discrete action.
SPACES_PROTOCOL_VERSION = 5

# Metadata of an actor's call: its serialized Hello, since version 3.
HELLO_KEY = "seedbed-hello-bin"
# Trailing metadata of a learner's rejection: a `StreamError`.
ERROR_KEY = "seedbed-error-bin"

# Between a learner and a replay shard.
REPLAY_PROTOCOL_VERSION = 1
OLDEST_REPLAY_PROTOCOL_VERSION = 1

# Between learners. All learners of a run have one release, so no older version is accepted.
GOSSIP_PROTOCOL_VERSION = 2
