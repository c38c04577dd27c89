"""Addresses of local streams."""

# What the path of the packets' socket has after that of gRPC's.
SUFFIX = ".shm"


def socket_of(address: str) -> str | None:
    """Return the path of the packets' socket beside gRPC's; None for an address of a network."""
    if not address.startswith("unix:"):
        return None
    return address.removeprefix("unix:") + SUFFIX
