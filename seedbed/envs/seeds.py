"""Seeds of environments."""

from seedbed.spec import ACTORS, ENVIRONMENTS, GROUPS

_MASK = (1 << 31) - 1


def environment_seed(run_seed: int, actor_index: int, group_index: int, i: int) -> int:
    """Return the seed of environment `i` of a group of an actor, in 0 .. 2^31-1.

    No two environments of a run share a seed: the three indices are the bits of one 31-bit number,
    and each operation below (an addition, a multiplication by an odd number, a xor with the right
    shift of the number) maps the 31-bit numbers one to one. Neighbouring indices get distant seeds.
    Another `run_seed` gives another order of the same seeds.

    Args:
        run_seed: seed of the experiment.
        actor_index: 0 .. ACTORS-1.
        group_index: 0 .. GROUPS-1.
        i: 0 .. ENVIRONMENTS-1.

    Raises:
        ValueError: an index is out of range.
    """
    for name, index, limit in (
        ("actor_index", actor_index, ACTORS),
        ("group_index", group_index, GROUPS),
        ("environment", i, ENVIRONMENTS),
    ):
        if not 0 <= index < limit:
            raise ValueError(f"{name} {index} has no seed of its own: it takes 0 .. {limit - 1}")
    place = (actor_index * GROUPS + group_index) * ENVIRONMENTS + i
    # Multipliers of the finalizer of MurmurHash3, here modulo 2^31.
    x = (_mix(run_seed & _MASK) + place) & _MASK
    return _mix(x ^ ((run_seed * 0x9E3779B1) & _MASK))


def moved_seed(seed: int, incarnation: int) -> int:
    """Return the seed of an environment in another incarnation, in 0 .. 2^31-1.

    Within an incarnation no two environments share a seed, because this maps the 31-bit numbers
    one to one.

    Args:
        seed: as of `environment_seed`.
        incarnation: from 0; 0 returns `seed`.
    """
    if incarnation == 0:
        return seed
    low, high = incarnation & _MASK, incarnation >> 31
    return _mix((seed + _mix(_mix(low ^ 0x5EED) + high & _MASK)) & _MASK)


def _mix(x: int) -> int:
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)
