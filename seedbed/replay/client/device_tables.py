"""Replay on the device as pure functions of its tables: add, sample and update.

The functions are compiled (`DeviceTables.compile`), or become a part of a compiled training step.
`DeviceReplay` decides on the host which item each sequence takes. Sampling looks up a number in
two levels of float32 sums: first among the sums of groups of items, then within one group.
"""

from keras import ops

from seedbed.backends.tables import Tables, TensorDict
from seedbed.replay.sequence import TIMED, UNTIMED, SequenceSpec
from seedbed.spec import ArraySpec
from seedbed.types import Tensor

# Items of a group. A sample finds its group by halving, then looks at all items of the group.
GROUP_SIZE = 128
# Bounds of scaled priorities, within which float32 can add up a whole replay.
_SMALLEST, _LARGEST = 1e-30, 1e30


def table_specs(spec: SequenceSpec, capacity: int) -> dict[str, tuple[int, ArraySpec]]:
    """Return rows and row spec of each table. One spare item, the last, is for padding."""
    groups = -(-(capacity + 1) // GROUP_SIZE)
    stored = {
        name: (capacity + 1, array)
        for name, array in spec.arrays().items()
        if name not in ("version", "time")
    }
    number = ArraySpec((), "float32")
    return {
        **stored,
        "version": (capacity + 1, number),
        # Seconds since the replay was made.
        "time": (capacity + 1, number),
        # Item of the same environment's sequence in the chunk before.
        "previous": (capacity + 1, ArraySpec((), "int32")),
        # p^α; 0 where the item cannot be sampled.
        "scaled_priority": (groups * GROUP_SIZE, number),
        # Sums of the scaled priorities of each group.
        "group_total": (groups, number),
        # How many batches were drawn, for the random numbers.
        "draws": (1, ArraySpec((), "int32")),
    }


def device_bytes(spec: SequenceSpec, capacity: int) -> int:
    """Return the memory of the tables on the device, in bytes."""
    return sum(rows * array.row_bytes for rows, array in table_specs(spec, capacity).values())


def set_draws(tables: Tables, count: Tensor) -> Tensor:
    """Set the number of the next draw.

    Args:
        tables: The tables of `table_specs`.
        count: [1] int32.
    """
    tables.put("draws", ops.zeros((1,), "int32"), count)
    return count


def add(
    tables: Tables,
    items: Tensor,
    rows: TensorDict,
    priority: Tensor,
    sampleable: Tensor,
    invalidated: Tensor,
    *,
    exponent: float,
) -> None:
    """Store sequences.

    Args:
        tables: The tables of `table_specs`.
        items: [N] int32, that the sequences take; padding names the spare item.
        rows: New rows [N, ...] of the tables, by name.
        priority: [N] float32.
        sampleable: [N] float32, 1 where the sequence can be sampled, else 0.
        invalidated: [M] int32, items that cannot be sampled any more.
        exponent: α.
    """
    for name, values in rows.items():
        tables.put(name, items, values)
    tables.put("scaled_priority", invalidated, ops.zeros(invalidated.shape, "float32"))
    # 0 to the power of 0 is 1, so what cannot be sampled needs a factor of its own.
    tables.put("scaled_priority", items, _scaled(priority, exponent) * sampleable)
    _sum_groups(tables, invalidated)
    _sum_groups(tables, items)


def add_frames(tables: Tables, items: Tensor, frames: Tensor) -> None:
    """Store the frames of sequences, which are on the device.

    Args:
        tables: The tables of `table_specs`.
        items: [N] int32, that the sequences take.
        frames: [N, T, *shape].
    """
    tables.put("frames", items, frames)


def update(
    tables: Tables, items: Tensor, priority: Tensor, valid: Tensor, *, exponent: float
) -> None:
    """Set new priorities.

    Args:
        tables: The tables of `table_specs`.
        items: [N] int32.
        priority: [N] float32.
        valid: [N] float32; 0 sets a scaled priority of 0.
        exponent: α.
    """
    tables.put("scaled_priority", items, _scaled(priority, exponent) * valid)
    _sum_groups(tables, items)


def sample(tables: Tables, uniform: Tensor, *, spec: SequenceSpec, capacity: int) -> TensorDict:
    """Draw sequences in proportion to their scaled priorities.

    Args:
        tables: The tables of `table_specs`.
        uniform: [B, 2] numbers in [0, 1): one for the group, one for the item.
        spec: Sizes of a sequence.
        capacity: Sequences.

    Returns:
        The batch, time-major, with probability [B] and items [B].
    """
    # Choose a group, then an item of the group.
    totals = tables.take("group_total", ops.arange(table_specs(spec, capacity)["group_total"][0]))
    group = choose_shared(totals, uniform[:, 0])
    items = group * GROUP_SIZE + choose_each(_group_members(tables, group), uniform[:, 1])
    batch = gather(tables, items, spec=spec)
    batch["probability"] = tables.take("scaled_priority", items) / ops.sum(totals)
    batch["items"] = items
    return batch


def gather(tables: Tables, items: Tensor, *, spec: SequenceSpec) -> TensorDict:
    """Return sequences, time-major.

    Args:
        tables: The tables of `table_specs`.
        items: [B] int32.
        spec: Sizes of a sequence.
    """
    batch = {name: ops.swapaxes(tables.take(name, items), 0, 1) for name in TIMED[1:]}
    batch |= {name: tables.take(name, items) for name in (*UNTIMED, "version", "time")}
    return {**batch, "observation": _frames(tables, items, spec)}


def _scaled(priority: Tensor, exponent: float) -> Tensor:
    """Return p^α, within bounds; only a priority of 0 becomes 0, with every exponent."""
    scaled = ops.clip(ops.power(priority, exponent), _SMALLEST, _LARGEST)
    return ops.where(priority > 0, scaled, 0.0)


def _sum_groups(tables: Tables, items: Tensor) -> None:
    """Sum the groups of items [N] anew."""
    groups = items // GROUP_SIZE
    tables.put("group_total", groups, ops.sum(_group_members(tables, groups), axis=-1))


def _group_members(tables: Tables, groups: Tensor) -> Tensor:
    """Return the scaled priorities [N, GROUP_SIZE] of groups [N]."""
    members = ops.expand_dims(groups * GROUP_SIZE, -1) + ops.arange(GROUP_SIZE, dtype="int32")
    return tables.take("scaled_priority", members)


def _frames(tables: Tables, items: Tensor, spec: SequenceSpec) -> Tensor:
    """Return the frames [F, B, *shape] of items [B], from their chunks and the ones before."""
    parts, missing = [], spec.frames
    # From the newest chunk back.
    for predecessor in range(spec.predecessors + 1):
        if predecessor:
            items = tables.take("previous", items)
        count = min(spec.steps, missing)
        parts.append(tables.take("frames", items)[:, spec.steps - count :])
        missing -= count
    frames = ops.concatenate(parts[::-1], axis=1) if len(parts) > 1 else parts[0]
    return ops.swapaxes(frames, 0, 1)


def choose_shared(weights: Tensor, uniform: Tensor) -> Tensor:
    """Choose indices [B] int32, each with probability weight / sum, from weights [N].

    An index of weight 0 is never chosen, whatever rounding does to the sums: it would be a group
    without a sequence that can be sampled.

    Args:
        weights: [N] float32, not negative, not all 0.
        uniform: [B] float32 in [0, 1).
    """
    cumulative = ops.cumsum(weights)
    chosen = ops.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    last = _last_true(weights > 0)
    chosen = ops.minimum(ops.cast(chosen, "int32"), last)
    return ops.where(ops.take(weights, chosen) > 0, chosen, last)


def choose_each(weights: Tensor, uniform: Tensor) -> Tensor:
    """Choose one index of each row, [B] int32; otherwise like `choose_shared`.

    Args:
        weights: [B, N] float32, not negative, no row all 0.
        uniform: [B] float32 in [0, 1).
    """
    cumulative = ops.cumsum(weights, axis=-1)
    point = ops.expand_dims(uniform, -1) * cumulative[:, -1:]
    positive = weights > 0
    beyond = ops.logical_and(cumulative > point, positive)
    first = ops.argmax(ops.cast(beyond, "int32"), axis=-1)
    return ops.where(ops.any(beyond, axis=-1), ops.cast(first, "int32"), _last_true(positive))


def _last_true(values: Tensor) -> Tensor:
    """Return the index [...] int32 of the last true value of [..., N] bool."""
    back = ops.argmax(ops.cast(ops.flip(values, axis=-1), "int32"), axis=-1)
    return ops.cast(values.shape[-1] - 1 - back, "int32")
