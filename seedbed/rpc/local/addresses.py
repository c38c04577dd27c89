"""Addresses of local streams."""


def socket_of(address: str) -> str | None:
    """Return the path of the packets' socket beside gRPC's; None for an address of a network."""
    if not address.startswith("unix:"):
        return None
    return address.removeprefix("unix:") + ".shm"
