"""Validate a Hello: protocol versions, environment, sizes. Both sides' numbers in every refusal."""

from __future__ import annotations

import numpy as np

from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from seedbed.services.learner.sessions.session import Greeting, StreamRefused
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.v1 import inference_pb2 as wire

_DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "float16", "float32")
# Rewards and flags of the largest group, and the message's own fields.
_STEP_OVERHEAD_BYTES = 64 * 1024


def read_hello(
    hello: wire.Hello, environment: str, spec: EnvironmentSpec | None, max_environments: int
) -> Greeting:
    """Check a Hello against this learner.

    Args:
        environment: the experiment's `environment.id`.
        spec: what the first session fixed, or a checkpoint; None before either.
        max_environments: largest group that fits a batch.

    Raises:
        StreamRefused: the first thing that does not fit.
    """
    version = min(hello.protocol_version, PROTOCOL_VERSION)
    if version < max(hello.oldest_protocol_version, OLDEST_PROTOCOL_VERSION) or version < 1:
        raise StreamRefused(
            "protocol_version",
            f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}",
            f"{hello.oldest_protocol_version} to {hello.protocol_version}",
            "upgrade the older side; versions next to each other work together",
        )
    if hello.environment != environment:
        raise StreamRefused(
            "environment",
            repr(environment),
            repr(hello.environment),
            "start actor and learner with the same experiment",
        )
    _between("environments", hello.environments, 1, max_environments,
             "learner.inference.max_batch_envs bounds actor.envs_per_group")  # fmt: skip
    _between("actions", hello.actions, 1, 2**15, "only discrete action spaces are supported")
    _between("action_repeat", hello.action_repeat, 1, 1024, "emulator frames a step")
    shape = tuple(hello.observation.shape)
    if hello.observation.dtype not in _DTYPES:
        raise StreamRefused(
            "observation.dtype",
            "one of " + ", ".join(_DTYPES),
            repr(hello.observation.dtype),
            "convert it in the environment",
        )
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise StreamRefused(
            "observation.shape",
            "one to three positive sizes",
            list(shape),
            "flatten it in the environment",
        )
    received = EnvironmentSpec(
        name=hello.environment,
        observation=ArraySpec(shape, str(np.dtype(hello.observation.dtype))),
        actions=hello.actions,
        action_repeat=hello.action_repeat,
    )
    step_bytes = hello.environments * received.observation.row_bytes
    if step_bytes > MAX_MESSAGE_BYTES - _STEP_OVERHEAD_BYTES:
        raise StreamRefused(
            "observation",
            f"steps of at most {MAX_MESSAGE_BYTES} bytes",
            f"{step_bytes} bytes: {hello.environments} environments of {received.observation}",
            "lower actor.envs_per_group or make the observation smaller",
        )
    if spec is not None:
        for field, ours, theirs in (
            ("observation", spec.observation, received.observation),
            ("actions", spec.actions, received.actions),
            ("action_repeat", spec.action_repeat, received.action_repeat),
        ):
            if ours != theirs:
                raise StreamRefused(
                    field, ours, theirs, "all actors and the checkpoint must have one environment"
                )
    return Greeting(version, hello.incarnation, hello.actor, hello.environments, received)


def _between(field: str, value: int, low: int, high: int, advice: str) -> None:
    if not low <= value <= high:
        raise StreamRefused(field, f"{low} to {high}", value, advice)
