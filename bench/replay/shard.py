"""The measured shard, a process of its own."""

from pathlib import Path

from bench.command import Command

EXPONENT = 0.9
START_S = 60.0


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
