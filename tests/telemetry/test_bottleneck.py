"""Which part is named, from numbers of situations that people meet."""

from __future__ import annotations

import pytest

from seedbed.backends.roles import Split
from seedbed.config.run import Stop
from seedbed.telemetry import Counters
from seedbed.telemetry.bottleneck import PARTS, bottleneck
from seedbed.telemetry.time_left import time_left

# A learner with a fast accelerator and 16 cores, remote actors, nothing full.
CALM = {
    "sessions": 8,
    "busy_fraction_inference": 0.4,
    "busy_fraction_prefetch": 0.1,
    "busy_fraction_training": 0.5,
    "blocked_fraction_inference": 0.0,
    "blocked_fraction_prefetch": 0.0,
    "blocked_fraction_training": 0.0,
    "unroll_queue_fill": 0.5,
    "actor_stepping_fraction": 0.6,
    "actor_cores": 0.7,
    "actor_held_up": 0.0,
    "actor_network": 0.1,
    "wire_cpu": 0.3,
    "learner_cpu_cores": 3.0,
    "machine_cores": 3.5,
    "environment_cores": 6.0,
}

TABLE = [
    # What happened, what differs from CALM, the part, and what the sentence must tell.
    ("no actors", {"sessions": 0}, "idle", "no actors"),
    ("just started", {"actor_stepping_fraction": None}, "unknown", "too little"),
    ("never looked", {"busy_fraction_training": None}, "unknown", "too little"),
    ("nothing is full", {}, "latency", "40 %"),
    (
        "few actors",
        {"actor_stepping_fraction": 0.93},
        "environments",
        "93 % of their time stepping",
    ),
    (
        "groups take turns",
        {"actor_stepping_fraction": 0.5, "actor_cores": 0.98},
        "environments",
        "1.0 cores",
    ),
    ("slow training", {"busy_fraction_training": 0.97}, "training", "97 %"),
    ("full queue", {"actor_held_up": 0.8}, "training", "80 %"),
    ("inference blocked", {"blocked_fraction_inference": 0.7}, "training", "70 %"),
    ("queue stays full", {"unroll_queue_fill": 0.97}, "training", "97 % full"),
    (
        "slow batches",
        {"busy_fraction_prefetch": 0.95, "unroll_queue_fill": 1.0},
        "prefetch",
        "95 %",
    ),
    ("slow inference", {"busy_fraction_inference": 0.95}, "inference", "95 %"),
    ("many small messages", {"wire_cpu": 0.97}, "grpc", "97 % of a core"),
    ("networks of their own", {"actors_act": 1.0}, "inference", "40 % of their time in networks"),
    ("far away", {"actor_network": 0.55, "actor_stepping_fraction": 0.3}, "network", "55 %"),
    (
        "on a node without a free core",
        {"actor_network": 0.55, "actor_stepping_fraction": 0.3, "machine_cores": 15.0},
        "cpu",
        "3.0 of 15.0 with the learner",
    ),
    (
        "not far away at all",
        {"actor_network": 0.55, "actors_here": True},
        "latency",
        "nothing is full",
    ),
    ("remote actors fill the learner", {"learner_cpu_cores": 15.5}, "cpu", "15.5 of 16 cores"),
    # What merely waits for a full part is not named.
    ("actors wait for training", {"actor_held_up": 0.6, "actor_network": 0.4}, "training", "60 %"),
]


@pytest.mark.parametrize(("changes", "part", "tells"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_part(changes: dict[str, object], part: str, tells: str) -> None:
    here = bool(changes.get("actors_here", False))
    found = bottleneck({**CALM, **changes}, 16, here)  # type: ignore[dict-item]
    assert found.part == part
    assert tells in found.sentence


@pytest.mark.parametrize(
    ("busy", "split", "told"),
    [
        (
            {"busy_fraction_training": 0.97},
            Split(3, 5),
            "works 40 %, to training: learner.devices 2+6",
        ),
        (
            {"busy_fraction_inference": 0.95},
            Split(3, 5),
            "works 50 %, to inference: learner.devices 4+4",
        ),
        # One device cannot go; the others would be full; and without roles none is to move.
        ({"busy_fraction_training": 0.97}, Split(1, 7), None),
        ({"busy_fraction_inference": 0.95}, Split(7, 1), None),
        ({"busy_fraction_training": 0.97, "busy_fraction_inference": 0.6}, Split(2, 6), None),
        ({"busy_fraction_inference": 0.95, "busy_fraction_training": 0.6}, Split(2, 2), None),
        ({"busy_fraction_training": 0.97}, Split(0, 1), None),
    ],
)
def test_a_device_moves_to_the_role_that_is_full(
    busy: dict[str, float], split: Split, told: str | None
) -> None:
    found = bottleneck({**CALM, **busy}, 16, False, split)
    assert (told in found.sentence) if told else ("move a device" not in found.sentence)


def test_every_word_has_a_row() -> None:
    assert {row[2] for row in TABLE} == set(PARTS)


def test_one_shared_machine() -> None:
    """2 cores: training 1.1, inference 0.4 (by the threads' time), environments 0.5."""
    load = {
        **CALM,
        "sessions": 2,
        "busy_fraction_inference": 0.2,
        "busy_fraction_prefetch": 0.0,
        "busy_fraction_training": 0.55,
        "actor_stepping_fraction": 0.9,
        "actor_held_up": 0.9,
        "wire_cpu": 0.0,
        "learner_cpu_cores": 1.5,
        "machine_cores": 2.0,
        "environment_cores": 1.4,  # wall time of steps that wait for a core themselves
    }
    assert bottleneck(load, 2, actors_here=True) == (
        "cpu",
        "2.0 of 2 cores busy: training 55 %, environments 25 %, inference 20 %",
    )
    # The same actors elsewhere leave the learner's cores alone.
    assert bottleneck(load, 2, actors_here=False).part == "training"
    # A neighbour that is not ours is named as what it is.
    busy_neighbour = {**load, "environment_cores": 0.1}
    assert "other programs 20 %" in bottleneck(busy_neighbour, 2, actors_here=True).sentence


def test_nearest_end() -> None:
    done = Counters(env_frames=400, updates=10, seconds=100.0, dollars=0.5)
    stop = Stop(env_frames=1000, updates=100, seconds=1000, dollars=1.0)
    assert time_left(stop, done, 100.0, 1.0, 3.6) == (6.0, "env_frames", False)
    assert time_left(stop, done, 1.0, 1.0, 3.6) == (90.0, "updates", False)
    assert time_left(stop, done, None, None, 3.6) == (500.0, "dollars", False)
    assert time_left(stop, done, None, None, 0.0) == (900.0, "seconds", False)
    assert time_left(Stop(), done, 100.0, 1.0, 3.6) is None
    assert time_left(Stop(env_frames=100), done, 100.0, 1.0, 3.6) == (0.0, "env_frames", False)
    # A mean return is not foreseen.
    left = time_left(Stop(env_frames=1000, mean_return=9.0), done, 100.0, 1.0, 3.6)
    assert left == (6.0, "env_frames", True)
