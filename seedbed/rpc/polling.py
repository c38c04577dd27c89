"""Choice of who reads the sockets of gRPC, made before the first import of `grpc`."""

import os
import sys
from typing import Final

EXPERIMENTS: Final = "GRPC_EXPERIMENTS"
# gRPC's event engine reads sockets in a pool of threads, which pass each message to the thread of
# the completion queue. Without it that thread reads them itself, which takes CPU time off each
# message at both ends, most where streams are few (docs/measurements).
_WITHOUT_ENGINE = "-event_engine_client,-event_engine_listener"


def import_grpc() -> None:
    """Import gRPC so that completion queues read the sockets, unless the environment chooses.

    gRPC reads the variable as it is imported. Afterwards the variable is gone again: other copies
    of gRPC, in models' libraries and in child processes, may not know these names.
    """
    if "grpc" in sys.modules or EXPERIMENTS in os.environ:
        return
    os.environ[EXPERIMENTS] = _WITHOUT_ENGINE
    try:
        import grpc  # noqa: F401
    finally:
        del os.environ[EXPERIMENTS]
