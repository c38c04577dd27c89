"""The measured shard: a process of its own, and the addresses beside it."""

from pathlib import Path

from bench.actor import free_port
from bench.command import Command

EXPONENT = 0.9
START_S = 60.0


def address_of(way: str, folder: Path, name: str) -> str:
    """Return an address for a process of this machine.

    Args:
        way: `shared memory` or `tcp`.
        folder: Of the socket.
        name: Of the socket.
    """
    if way != "tcp":
        return f"unix:{folder}/{name}.sock"
    return f"127.0.0.1:{free_port()}"


def start_shard(folder: Path, address: str, sequences: int, *options: str) -> Command:
    """Start a shard, whose log says "listening" within `START_S`.

    Args:
        folder: Of its log.
        address: Where it listens.
        sequences: Its capacity.
        options: More arguments of `seedbed replay`.
    """
    return Command(
        folder / "shard.log",
        *("replay", "--listen", address, "--metrics-port", "0"),
        *("--sequences", str(sequences), *options),
    )
