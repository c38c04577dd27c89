"""The part that holds the run back, from measured fractions: a pure function and its limits."""

from collections.abc import Mapping
from typing import NamedTuple

from seedbed.backends.roles import SHARED, Split
from seedbed.runtime.formats import fill, percent
from seedbed.runtime.text import counted
from seedbed.telemetry.busy import THREADS

# A part that works so much of its time sets the pace.
FULL = 0.85
# Training is behind when sessions wait so much of their time for room in a full unroll queue.
BACKPRESSURE = 0.3
# Training is behind when the unroll queue is so full on average; otherwise it is half full.
QUEUE_FULL = 0.9
# So much of the CPU is used that whatever computes on it waits for it.
ALL_CORES = 0.9
# So much of the groups' time passes where the learner has no part in it.
NETWORK = 0.3

PARTS = (
    "idle",
    "unknown",
    "cpu",
    "training",
    "prefetch",
    "inference",
    "grpc",
    "environments",
    "network",
    "latency",
)


class Bottleneck(NamedTuple):
    """The part that sets the pace, one of `PARTS`, and a sentence with the numbers."""

    part: str
    sentence: str


_TRAINING = (
    "training works {busy_fraction_training:%} of the time; use a faster device or a smaller "
    "network"
)

# Number, limit from which on its part is full, part, and sentence: the first that is full counts.
_LIMITS = (
    (
        "only_prefetch",
        FULL,
        "prefetch",
        "building batches takes {only_prefetch:%} of the prefetch thread's time, training only "
        "works {busy_fraction_training:%}",
    ),
    (
        "backpressure",
        BACKPRESSURE,
        "training",
        "the full unroll queue holds actors up {backpressure:%} of the time, " + _TRAINING,
    ),
    (
        "unroll_queue_fill",
        QUEUE_FULL,
        "training",
        "the unroll queue is {unroll_queue_fill:%} full, " + _TRAINING,
    ),
    ("busy_fraction_training", FULL, "training", _TRAINING),
    (
        "busy_fraction_inference",
        FULL,
        "inference",
        "inference works {busy_fraction_inference:%} of the time; larger batches, a faster device "
        "or a smaller network",
    ),
    (
        "wire_cpu",
        FULL,
        "grpc",
        "receiving messages takes {wire_cpu:%} of a core; use more environments a group",
    ),
    (
        "actor_stepping_fraction",
        FULL,
        "environments",
        "actors spend {actor_stepping_fraction:%} of their time stepping; add actors or CPUs",
    ),
    # Groups take turns on a core: each waits for the other, and the core is always busy.
    (
        "actor_cores",
        FULL,
        "environments",
        "each actor keeps {actor_cores:.1f} cores stepping; add actors or CPUs",
    ),
    # On a machine without a free core every message waits for one, at both ends.
    (
        "crowded",
        ALL_CORES,
        "cpu",
        "all cores of the learner's machine are busy, {learner_cpu_cores:.1f} of "
        "{machine_cores:.1f} with the learner, and actors wait {remote_network:%} of their time "
        "for messages; take a larger machine, or put fewer actors on this one",
    ),
    (
        "remote_network",
        NETWORK,
        "network",
        "actors spend {remote_network:%} of their time on the way to the learner and back; add "
        "groups or environments a group, give actors more CPU, or move them closer",
    ),
    (
        "actor_inference",
        0.0,
        "inference",
        "actors spend {actor_inference:%} of their time in networks of their own; add actors or "
        "CPUs, or let the learner act (learner.inference.location)",
    ),
    (
        "actor_waiting",
        0.0,
        "latency",
        "actors wait {actor_waiting:%} of their time though nothing is full (inference "
        "{busy_fraction_inference:%}, training {busy_fraction_training:%}); add actors, "
        "groups or environments",
    ),
)


def bottleneck(
    measured: Mapping[str, float | None],
    cores: float,
    actors_here: bool,
    split: Split = SHARED,
) -> Bottleneck:
    """Return the part that sets the pace.

    A part is only named when it is full itself; a part that waits for it is not. So the order
    goes against the flow of the data: the cores that all share, training, inference, gRPC, the
    environments, and last the network between the machines.

    Args:
        measured: Columns of progress.csv, where None is unknown. Besides, `environment_cores`: the
            cores that environment steps used, at most (wall time of the steps); and `actor_cores`:
            seconds of steps a second of an actor process, over its groups; and `actors_act`: 1
            where actors choose their actions themselves.
        cores: Cores that the learner may use.
        actors_here: The actors run on the learner's machine.
        split: How many devices act, and how many train.
    """
    if not measured["sessions"]:
        return Bottleneck("idle", "no actors are connected")
    if measured["busy_fraction_training"] is None or measured["actor_stepping_fraction"] is None:
        return Bottleneck("unknown", "too little has been measured yet")
    known = {name: value or 0.0 for name, value in measured.items()}
    used = known["learner_cpu_cores"]
    if actors_here:
        used = known["machine_cores"] or used
    if used >= ALL_CORES * cores:
        return Bottleneck("cpu", _cpu_sentence(known, used, cores, actors_here))
    is_training_full = known["busy_fraction_training"] >= FULL
    waiting = 1 - known["actor_stepping_fraction"]
    far = 0.0 if actors_here else known["actor_network"]
    known |= {
        "only_prefetch": 0.0 if is_training_full else known["busy_fraction_prefetch"],
        "backpressure": max(known["blocked_fraction_inference"], known["actor_held_up"]),
        "crowded": known["machine_cores"] / cores if far >= NETWORK else 0.0,
        "remote_network": far,
        "actor_waiting": waiting,
        "actor_inference": waiting if measured.get("actors_act") else -1.0,
    }
    part, sentence = next(row[2:] for row in _LIMITS if known[row[0]] >= row[1])
    return Bottleneck(part, fill(sentence + _move(part, known, split), known))


def _move(part: str, known: Mapping[str, float], split: Split) -> str:
    """Return which way to move a device between the roles; "" where none should move."""
    inference, training = split
    if part == "training":
        source, devices, target = "inference", inference, f"{inference - 1}+{training + 1}"
    elif part == "inference" and inference:
        source, devices, target = "training", training, f"{inference + 1}+{training - 1}"
    else:
        return ""
    # The devices that stay have the work of the one that goes.
    if devices < 2 or known[f"busy_fraction_{source}"] * devices / (devices - 1) >= FULL:
        return ""
    return (
        f"; or move a device from {source}, which works {{busy_fraction_{source}:%}}, to {part}: "
        f"learner.devices {target} (inference + training)"
    )


def _cpu_sentence(known: Mapping[str, float], used: float, cores: float, actors_here: bool) -> str:
    # The share of gRPC is measured. The rest of the learner's is split by how long each thread
    # worked, because the cores that a thread's computation takes are not known one by one.
    learner = known["learner_cpu_cores"]
    grpc = min(known["wire_cpu"], learner)
    working = sum(known[f"busy_fraction_{name}"] for name in THREADS)
    parts = {
        name: (learner - grpc) * known[f"busy_fraction_{name}"] / working if working else 0.0
        for name in THREADS
    }
    parts["grpc"] = grpc
    if actors_here:
        others = max(0.0, used - learner)
        parts["environments"] = min(known["environment_cores"], others)
        parts["other programs"] = others - parts["environments"]
    shown = sorted(((part, name) for name, part in parts.items()), reverse=True)
    shares = [f"{name} {percent(part / used)}" for part, name in shown if part / used >= 0.02]
    return f"{used:.1f} of {counted(f'{cores:g}', 'core')} busy: {', '.join(shares) or 'learner'}"
