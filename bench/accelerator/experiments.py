"""Experiments that the first hour measures, as files."""

from pathlib import Path
from typing import Any

import yaml

from bench.accelerator.sizes import Sizes
from bench.machine import actor_cores

ALE, NULL = "atari:Pong", "bench.accelerator.environments:NullAtari"
# Agents of Table 8 of the SEED paper (R2D2), and of IMPALA's Atari experiments (V-trace).
R2D2_NETWORK = {"network": "nature", "lstm_units": 512}
VTRACE_NETWORK = {"network": "nature"}
SMALL = {"network": "impala_shallow"}


def learner(backend: str, precision: str, **settings: Any) -> dict[str, Any]:
    """Return a section `learner`.

    Args:
        backend: Of Keras.
        precision: Of the networks.
        settings: The rest.
    """
    timeouts = {"watchdog_timeout_s": 100_000, "notice_interval_s": 100_000}
    return {"backend": backend, "precision": precision, **timeouts, **settings}


def write(folder: Path, name: str, **sections: Any) -> str:
    """Write an experiment without a final evaluation; return its path."""
    path = folder / f"{name}.yaml"
    whole = {
        "name": name,
        "environment": {"id": ALE},
        "agent": "vtrace",
        "actor": {"processes": 1, "groups": 1, "envs_per_group": 1},
        "evaluation": {"at_end": False},
        **sections,
    }
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    return str(path)


def vtrace_parts(
    folder: Path, sizes: Sizes, backend: str, precision: str, batch_size: int, inference: int
) -> str:
    """Write V-trace on Atari, whose parts are measured alone; return the path.

    Args:
        folder: Where to.
        sizes: The unroll's length.
        backend: Of Keras.
        precision: Of the networks.
        batch_size: Unrolls of a batch.
        inference: Environments of the largest inference batch.
    """
    section = learner(
        backend,
        precision,
        **(SMALL if sizes.small_network else VTRACE_NETWORK),
        unroll_length=sizes.unroll_length,
        batch_size=batch_size,
        inference={"slots": inference, "max_batch_envs": inference},
    )
    return write(folder, f"parts-{precision}-{batch_size}-{inference}", learner=section)


def invariant(folder: Path, sizes: Sizes, backend: str, precision: str) -> str:
    """Write V-trace with an LSTM, whose acting and training are compared; return the path."""
    environments = sizes.invariant_environments
    section = learner(
        backend,
        precision,
        network="impala_shallow" if sizes.small_network else "nature",
        lstm_units=16 if sizes.small_network else 512,
        unroll_length=sizes.invariant_steps,
        batch_size=environments,
        inference={"slots": environments, "max_batch_envs": environments},
    )
    return write(folder, f"invariant-{precision}", learner=section)


def r2d2_learner(
    sizes: Sizes, backend: str, precision: str, capacity: int, environments: int
) -> dict[str, Any]:
    """Return the section `learner` of R2D2 (Table 8) with its replay on the device.

    Args:
        sizes: Batch and network.
        backend: Of Keras.
        precision: Of the networks.
        capacity: Sequences of the replay.
        environments: That are connected.
    """
    small = sizes.small_network
    return learner(
        backend,
        precision,
        **(R2D2_NETWORK | ({**SMALL, "lstm_units": 16} if small else {})),
        unroll_length=4 if small else 80,
        batch_size=sizes.sequence_batch,
        replay={
            "storage": "device",
            "capacity": capacity,
            "min_size": min(1_000, capacity // 8),
            "ratio": 0.75,
        },
        inference=_inference(environments),
    )


def r2d2_options(sizes: Sizes) -> dict[str, Any]:
    """Return the section `r2d2`: Table 8, or what fits the small sequences."""
    return {"burn_in": 2, "n_steps": 1, "dueling_units": 16} if sizes.small_network else {}


def end_to_end(
    folder: Path, sizes: Sizes, backend: str, precision: str, agent: str, environment: str
) -> str:
    """Write a run with all cores of this machine; return the path.

    Args:
        folder: Where to.
        sizes: Of groups, batches and replay.
        backend: Of Keras.
        precision: Of the networks.
        agent: `vtrace` or `r2d2`.
        environment: `ale` or `null`.
    """
    actor = _actor(sizes)
    environments = total_environments(sizes)
    sections: dict[str, Any] = {
        "environment": {"id": {"ale": ALE, "null": NULL}[environment]},
        "actor": actor,
        "agent": agent,
    }
    if agent == "r2d2":
        capacity = max(sizes.end_to_end_sequences, 4 * environments)
        sections["learner"] = r2d2_learner(sizes, backend, precision, capacity, environments)
        sections["r2d2"] = r2d2_options(sizes)
    else:
        sections["learner"] = learner(
            backend,
            precision,
            **(SMALL if sizes.small_network else VTRACE_NETWORK),
            unroll_length=sizes.unroll_length,
            batch_size=2 if sizes.small_network else 64,
            inference=_inference(environments),
        )
    return write(folder, f"{agent}-{environment}-{precision}", **sections)


def total_environments(sizes: Sizes) -> int:
    """Return the environments of an end to end run on this machine."""
    actor = _actor(sizes)
    return actor["processes"] * actor["groups"] * actor["envs_per_group"]


def _actor(sizes: Sizes) -> dict[str, int]:
    return {"processes": actor_cores(), "groups": 2, "envs_per_group": sizes.envs_per_group}


def _inference(environments: int) -> dict[str, int]:
    return {"slots": environments, "max_batch_envs": max(1, environments // 2)}
