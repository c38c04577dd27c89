"""Descriptors that the sockets of this process may take, whoever asks.

All listeners of a process share what its limit leaves beside its own files and a reserve, so that a
flood of one of them, or of all at once, takes no descriptor of a checkpoint. Each has a part that
is fixed before it listens, because gRPC closes connections above a number and asks nobody.
"""

import functools
import resource
from pathlib import Path

# Connections of the HTTP port; the oldest one ends where one more comes.
HTTP_CONNECTIONS = 16
# For files that are opened later: checkpoints, logs, libraries, child processes, connections to
# others.
RESERVED_DESCRIPTORS = 64
# Of one socket, where there are as many descriptors.
_MOST_CONNECTIONS = 4096
# An honest client is answered however low the limit is.
_FEWEST_CONNECTIONS = 4


def descriptor_limit() -> int:
    """Return how many descriptors this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = 4 * _MOST_CONNECTIONS
    return most if limit == resource.RLIM_INFINITY else limit


def connections(share: float, sockets: int) -> int:
    """Return how many connections each socket of a server takes.

    Args:
        share: Part of the budget that the server has; the parts of a process are at most 1.
        sockets: Sockets that the server listens on, at least 1.
    """
    left = descriptor_limit() - _own_descriptors() - RESERVED_DESCRIPTORS - HTTP_CONNECTIONS
    return max(_FEWEST_CONNECTIONS, min(int(left * share) // sockets, _MOST_CONNECTIONS))


@functools.cache
def _own_descriptors() -> int:
    """Return the descriptors that were open before the first server listened."""
    return len(list(Path("/proc/self/fd").iterdir()))
