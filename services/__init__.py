"""One folder a process: the learner, the actor, the replay shard and the cost meter."""

if __name__ == "services":
    raise ImportError("import seedbed.services: a bare `services` is not a package")

# Before a service imports gRPC itself: the package chooses how gRPC reads sockets.
import seedbed.rpc  # noqa: F401
