"""`seedbed bench`: one file a measurement, and the processes that they measure."""

# Before a part imports gRPC itself: bare streams read their sockets as Seedbed's do.
import seedbed.rpc  # noqa: F401
