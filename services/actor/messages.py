"""Messages of an actor: Hello and steps."""

import secrets

import numpy as np

from seedbed.rpc.spaces import spaces_to_wire
from seedbed.rpc.step_codec import Step
from seedbed.rpc.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from seedbed.spec import TimeStep, VectorEnv, pack_flags
from seedbed.v1 import inference_pb2 as wire


def make_hello(env: VectorEnv, name: str) -> wire.Hello:
    """Return the Hello of a stream of `env`, with a new incarnation."""
    spec = env.spec
    return wire.Hello(
        protocol_version=PROTOCOL_VERSION,
        oldest_protocol_version=OLDEST_PROTOCOL_VERSION,
        incarnation=secrets.randbits(63),
        actor=name,
        environment=spec.name,
        environments=env.num_envs,
        observation=wire.ArraySpec(shape=spec.observation.shape, dtype=spec.observation.dtype),
        actions=spec.actions,
        action_repeat=spec.action_repeat,
        **spaces_to_wire(spec),
    )


def make_step(
    time_step: TimeStep, sequence: int, environment_s: float = 0.0, wait_s: float = 0.0
) -> Step:
    """Return a time step as a message.

    Args:
        time_step: not copied, so send the message before the next step.
        sequence: number of the step in its stream, from 0.
        environment_s: seconds that the environments took for it.
        wait_s: seconds that the actor waited for the actions that led to it.
    """
    return Step(
        sequence,
        np.ascontiguousarray(time_step.observation).data.cast("B"),
        time_step.reward.tobytes(),
        pack_flags(time_step),
        environment_s,
        wait_s,
    )
