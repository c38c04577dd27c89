"""The part that holds the run back, from measured fractions: a pure function and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True)
class Load:
    """Measurements of the last half minute. Fractions are of one; None is unknown.

    Attributes:
        sessions: Actor streams.
        busy: Fraction of its time that a learner thread worked, by name.
        blocked: Fraction of its time that a learner thread waited for a neighbour, by name.
        queue_fill: How full the unroll queue was on average.
        stepping: Fraction of the groups' time spent in environment steps; they wait in the rest.
        actor_cores: Seconds of environment steps a second of an actor process, over its groups.
        backpressure: Fraction of the groups' time in which the full unroll queue kept them waiting.
        network: Fraction of the groups' time beyond the steps and the learner's own latency.
        grpc: Fraction of one core that the event loop used.
        cores: Cores that the learner may use.
        learner_cores: Cores that the learner's process used.
        machine_cores: Cores that everything on the machine used.
        environment_cores: Cores that environment steps used, at most (wall time of the steps).
        actors_here: The actors run on the learner's machine.
    """

    sessions: int = 0
    busy: dict[str, float] | None = None
    blocked: dict[str, float] | None = None
    queue_fill: float | None = None
    stepping: float | None = None
    actor_cores: float | None = None
    backpressure: float | None = None
    network: float | None = None
    grpc: float | None = None
    cores: float = 1.0
    learner_cores: float | None = None
    machine_cores: float | None = None
    environment_cores: float | None = None
    actors_here: bool = False


class Bottleneck(NamedTuple):
    """The part that sets the pace, one of `PARTS`, and a sentence with the numbers."""

    part: str
    sentence: str


def bottleneck(load: Load) -> Bottleneck:
    """Return the part that sets the pace.

    A part is only named when it is full itself; a part that waits for it is not. So the order
    goes against the flow of the data: the cores that all share, training, inference, gRPC, the
    environments, and last the network between the machines.
    """
    if load.sessions == 0:
        return Bottleneck("idle", "no actors are connected")
    if not load.busy or load.stepping is None:
        return Bottleneck("unknown", "too little has been measured yet")
    busy, blocked = load.busy, load.blocked or {}
    return (
        _cpu(load, busy)
        or _training(load, busy, blocked)
        or _inference(busy)
        or _grpc(load)
        or _environments(load)
        or _network(load)
        or _latency(load, busy)
    )


def _cpu(load: Load, busy: dict[str, float]) -> Bottleneck | None:
    learner = load.learner_cores or 0.0
    used = learner
    if load.actors_here:
        used = load.machine_cores if load.machine_cores is not None else learner
    if used < ALL_CORES * load.cores:
        return None
    # The share of gRPC is measured. The rest of the learner's is split by how long each thread
    # worked, because the cores that a thread's computation takes are not known one by one.
    grpc = min(load.grpc or 0.0, learner)
    working = sum(busy.values())
    parts = {
        name: (learner - grpc) * fraction / working if working else 0.0
        for name, fraction in busy.items()
    }
    parts["grpc"] = grpc
    if load.actors_here:
        others = max(0.0, used - learner)
        parts["environments"] = min(load.environment_cores or 0.0, others)
        parts["the rest"] = others - parts["environments"]
    shown = sorted(((part, name) for name, part in parts.items()), reverse=True)
    shares = [f"{name} {_percent(part / used)}" for part, name in shown if part / used >= 0.02]
    return Bottleneck(
        "cpu", f"{used:.1f} of {load.cores:g} cores busy: {', '.join(shares) or 'learner'}"
    )


def _training(load: Load, busy: dict[str, float], blocked: dict[str, float]) -> Bottleneck | None:
    training, prefetch = busy.get("training", 0.0), busy.get("prefetch", 0.0)
    backpressure = max(blocked.get("inference", 0.0), load.backpressure or 0.0)
    fill = load.queue_fill or 0.0
    if prefetch >= FULL and training < FULL:
        return Bottleneck(
            "prefetch",
            f"building batches takes {_percent(prefetch)} of the prefetch thread's time, training "
            f"only works {_percent(training)}",
        )
    if backpressure >= BACKPRESSURE:
        queue = f"the full unroll queue holds actors up {_percent(backpressure)} of the time, "
    elif fill >= QUEUE_FULL:
        queue = f"the unroll queue is {_percent(fill)} full, "
    elif training >= FULL:
        queue = ""
    else:
        return None
    return Bottleneck(
        "training",
        f"{queue}training works {_percent(training)} of the time; use a faster device or a smaller "
        "network",
    )


def _inference(busy: dict[str, float]) -> Bottleneck | None:
    inference = busy.get("inference", 0.0)
    if inference < FULL:
        return None
    return Bottleneck(
        "inference",
        f"inference works {_percent(inference)} of the time; larger batches, a faster device or a "
        "smaller network",
    )


def _grpc(load: Load) -> Bottleneck | None:
    if load.grpc is None or load.grpc < FULL:
        return None
    return Bottleneck(
        "grpc",
        f"receiving messages takes {_percent(load.grpc)} of a core; use more environments a group",
    )


def _environments(load: Load) -> Bottleneck | None:
    assert load.stepping is not None
    if load.stepping >= FULL:
        share = f"actors spend {_percent(load.stepping)} of their time stepping"
    elif load.actor_cores is not None and load.actor_cores >= FULL:
        # Groups take turns on a core: each waits for the other, and the core is always busy.
        share = f"each actor keeps {load.actor_cores:.1f} cores stepping"
    else:
        return None
    return Bottleneck("environments", f"{share}; add actors or CPUs")


def _network(load: Load) -> Bottleneck | None:
    if load.actors_here or load.network is None or load.network < NETWORK:
        return None
    return Bottleneck(
        "network",
        f"actors spend {_percent(load.network)} of their time on the way to the learner and back; "
        "move them closer, or add groups",
    )


def _latency(load: Load, busy: dict[str, float]) -> Bottleneck:
    assert load.stepping is not None
    return Bottleneck(
        "latency",
        f"actors wait {_percent(1 - load.stepping)} of their time though nothing is full "
        f"(inference {_percent(busy.get('inference', 0.0))}, training "
        f"{_percent(busy.get('training', 0.0))}); add actors, groups or environments",
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
