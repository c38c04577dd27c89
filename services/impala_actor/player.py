"""Unrolls on the actor: its environments, and a copy of the network on its CPU. Imports Keras.

Import it after `seedbed.backends.use`.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.inference_step import InferenceStep
from seedbed.agents.protocol import Agent
from seedbed.backends.protocol import Backend
from seedbed.config import Experiment
from seedbed.factory import build_agent
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import EnvironmentSpec, StepInputs, TimeStep, VectorEnv, pack_flags
from seedbed.types import Params
from seedbed.v1 import inference_pb2 as wire


@dataclass(frozen=True)
class NetworkCopy:
    """The agent of a process, and the shapes of its parameters, in the order of the wire."""

    backend: Backend
    agent: Agent
    shapes: list[tuple[int, ...]]

    @classmethod
    def build(
        cls, experiment: Experiment, spec: EnvironmentSpec, backend: Backend
    ) -> "NetworkCopy":
        """Build the agent of the experiment.

        Raises:
            SeedbedError: CONFIG: as `build_agent`.
        """
        agent = build_agent(experiment, spec)
        shapes = [tuple(variable.shape) for variable in agent.model.trainable_variables]
        return cls(backend, agent, shapes)

    def params(self, flat: bytes) -> Params:
        """Return the parameters out of the learner's flat buffer.

        Raises:
            SeedbedError: CONFIG: the buffer has another size.
        """
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        if len(flat) != 4 * sum(sizes):
            raise ConfigError(
                f"the learner sends {len(flat)} bytes of parameters, and the network here has "
                f"{4 * sum(sizes)}: start actor and learner with the same experiment"
            )
        parts = np.split(np.frombuffer(flat, np.float32), np.cumsum(sizes)[:-1])
        return [
            ops.convert_to_tensor(part.reshape(shape))
            for part, shape in zip(parts, self.shapes, strict=True)
        ]


class UnrollPlayer:
    """Plays unrolls of one group. One thread calls it.

    Args:
        network: the network of this process.
        env: the environments, E.
        experiment: its `learner` settings are read.
        seed: seed of the sampled actions.
    """

    def __init__(
        self, network: NetworkCopy, env: VectorEnv, experiment: Experiment, seed: tuple[int, ...]
    ) -> None:
        learner = experiment.learner
        self._network, self._env, self._seed = network, env, seed
        self._length = learner.unroll_length
        self._slots = np.arange(env.num_envs, dtype=np.int32)
        self._inference = InferenceStep(
            network.backend,
            network.agent,
            env.spec,
            learner.frame_stack,
            slots=env.num_envs,
            max_batch=env.num_envs,
            seed=seed,
        )
        self._names = list(network.agent.behaviour)
        self._sequence = 0
        self._newest: TimeStep | None = None
        self._action = env.spec.action.none(env.num_envs)

    def begin(self) -> None:
        """Start new episodes, by `env.incarnation`, at the beginning of a stream."""
        self._inference.random = np.random.default_rng((*self._seed, self._env.incarnation))
        self._sequence, self._newest = 0, None
        self._action = self._env.spec.action.none(self._env.num_envs)

    def play(self, flat: bytes | None, version: int, waited_s: float) -> wire.Unroll:
        """Play T steps with one version of the parameters.

        Args:
            flat: the parameters; None for those of the last call.
            version: version of the parameters.
            waited_s: seconds that the actor waited for them.
        """
        if flat is not None:
            self._params = self._network.params(flat)
        unroll = _Writer()
        if self._newest is None:
            started = time.perf_counter()
            self._newest = self._env.reset()
            unroll.add_step(self._newest, time.perf_counter() - started, 0.0)
        for t in range(self._length):
            started = time.perf_counter()
            action = self._act(self._newest, unroll, with_state=t == 0)
            acted = time.perf_counter()
            self._newest = self._env.step(action)
            ended = time.perf_counter()
            unroll.add_step(self._newest, ended - acted, acted - started + waited_s)
            waited_s = 0.0
        message = unroll.message(self._sequence, version, self._names)
        self._sequence += len(unroll.flags)
        return message

    def _act(self, step: TimeStep, unroll: "_Writer", with_state: bool) -> NDArray[Any]:
        flags = np.frombuffer(pack_flags(step), np.uint8)
        inputs = StepInputs(self._slots, step.observation, flags, step.reward, self._action)
        outputs = self._inference.run(self._params, [inputs])
        if with_state:
            unroll.state = outputs.state_before().tobytes()
        self._action = outputs.action
        unroll.action.append(outputs.action.tobytes())
        for name in self._names:
            unroll.behaviour.setdefault(name, []).append(outputs.behaviour[name].tobytes())
        return outputs.action


class _Writer:
    """The arrays of an unroll as bytes, step by step."""

    def __init__(self) -> None:
        self.observation: list[bytes] = []
        self.reward: list[bytes] = []
        self.flags: list[bytes] = []
        self.environment_s: list[float] = []
        self.wait_s: list[float] = []
        self.action: list[bytes] = []
        self.behaviour: dict[str, list[bytes]] = {}
        self.state = b""

    def add_step(self, step: TimeStep, environment_s: float, wait_s: float) -> None:
        """Copy a time step, whose arrays the environment writes again."""
        self.observation.append(step.observation.tobytes())
        self.reward.append(step.reward.tobytes())
        self.flags.append(pack_flags(step))
        self.environment_s.append(environment_s)
        self.wait_s.append(wait_s)

    def message(self, sequence: int, version: int, names: list[str]) -> wire.Unroll:
        """Return the message.

        Args:
            sequence: number of the first step.
            version: version of the parameters.
            names: the agent's order of the behaviour arrays.
        """
        return wire.Unroll(
            sequence=sequence,
            observation=b"".join(self.observation),
            reward=b"".join(self.reward),
            flags=b"".join(self.flags),
            environment_seconds=np.array(self.environment_s, np.float32).tobytes(),
            wait_seconds=np.array(self.wait_s, np.float32).tobytes(),
            action=b"".join(self.action),
            behaviour=[b"".join(self.behaviour[name]) for name in names],
            state=self.state,
            version=version,
        )
