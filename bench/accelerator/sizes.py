"""Sizes of the first hour's measurements: the full ones, and those of `--quick`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.accelerator.nvidia import nvidia


@dataclass(frozen=True)
class Sizes:
    """How large, how often. Windows are those of an hour; fewer minutes make them shorter."""

    window_s: float = 5.0  # of a latency or of a step
    runs: int = 3
    invariant_environments: int = 64
    invariant_steps: int = 20
    inference_batches: Sequence[int] = (1, 8, 32, 64, 128, 256, 512, 1024)
    training_batches: Sequence[int] = (16, 32, 64, 128, 256)
    busy_batch: int = 32  # unrolls that train meanwhile
    unroll_length: int = 20
    transitions: int = 1_000_000
    replay_batches: Sequence[int] = (16, 32, 64, 128, 256)
    replay_sizes: Sequence[int] = (1, 10, 100, 500, 2000, 10000)
    melee_batches: Sequence[int] = (32, 128)
    melee_window_s: float = 90.0
    sequences: int = 100_000
    sequence_batch: int = 64
    envs_per_group: int = 64
    end_to_end_window_s: float = 60.0
    end_to_end_sequences: int = 20_000
    end_to_end: Sequence[tuple[str, str]] = (
        ("vtrace", "null"),
        ("vtrace", "ale"),
        ("r2d2", "null"),
        ("r2d2", "ale"),
    )  # fmt: skip; R2D2 compiles for minutes
    small_network: bool = False
    curve_s: float = 170.0  # of a slice of a curve's run
    curve_slices: int = 100  # at most
    curve_games: Sequence[str] = ("Pong", "Breakout")


FULL = Sizes()
# Whether it works, and not how fast: one process can do all of it on two cores in a minute or two.
QUICK = Sizes(
    window_s=0.1,
    runs=1,
    invariant_environments=6,
    invariant_steps=4,
    inference_batches=(1, 4),
    training_batches=(2,),
    busy_batch=2,
    unroll_length=4,
    transitions=4_000,
    replay_batches=(16,),
    replay_sizes=(1, 100),
    melee_batches=(32,),
    melee_window_s=1.0,
    sequences=64,
    sequence_batch=2,
    envs_per_group=4,
    end_to_end_window_s=1.0,
    end_to_end_sequences=256,
    end_to_end=(("r2d2", "null"), ("vtrace", "ale")),
    small_network=True,
    curve_s=3.0,
    curve_slices=2,
    curve_games=("Pong",),
)


PRECISIONS = ("float32", "bfloat16")


def every_precision() -> tuple[str, ...]:
    """Return the precisions of this machine: NVIDIA GPUs have one more, for products alone."""
    return (*PRECISIONS, "tensorfloat32") if nvidia() else PRECISIONS


def sizes_for(minutes: float, is_quick: bool) -> Sizes:
    """Return the sizes of a measurement of so many minutes."""
    if is_quick:
        return QUICK
    part = min(1.0, max(0.1, minutes / 60))
    windows = ("window_s", "melee_window_s", "end_to_end_window_s")
    return replace(FULL, **{name: part * getattr(FULL, name) for name in windows})
