"""A trained policy on this process's backend. Import it after `backends.use`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.inference_step import InferenceStep
from seedbed.agents.protocol import Agent
from seedbed.backends.protocol import Backend
from seedbed.checkpoints.format import Checkpoint
from seedbed.config import Experiment
from seedbed.export.policy import load_agent
from seedbed.spec import FIRST, EnvironmentSpec, StepInputs, TimeStep


@dataclass(frozen=True)
class TrainedPolicy:
    """An agent with trained parameters."""

    backend: Backend
    agent: Agent
    spec: EnvironmentSpec
    frame_stack: int

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, experiment: Experiment, backend: Backend
    ) -> "TrainedPolicy":
        """Build the agent of a checkpoint.

        Args:
            checkpoint: the checkpoint.
            experiment: its experiment, as `stored_experiment` returns it.
            backend: backend of this process.

        Raises:
            SeedbedError: CHECKPOINT_READ, the arrays do not fit the experiment's network.
        """
        agent = load_agent(checkpoint, experiment)
        return cls(backend, agent, checkpoint.spec, experiment.learner.frame_stack)

    def is_greedy(self, experiment: Experiment) -> bool:
        """Return whether `evaluation.policy`, or else the agent, asks for greedy actions."""
        policy: str = experiment.evaluation.policy
        if policy == "agent":
            policy = self.agent.evaluates
        return policy == "greedy"


class PolicyRunner:
    """Chooses actions for one vector environment, with frame stacks and recurrent state.

    Args:
        policy: the policy.
        num_envs: environments of the vector environment, E.
        seed: seed of the sampled actions.
        greedy: take the most probable action, or the highest action value.
    """

    def __init__(self, policy: TrainedPolicy, num_envs: int, seed: int, greedy: bool) -> None:
        self._inference = InferenceStep(
            policy.backend,
            policy.agent,
            policy.spec,
            policy.frame_stack,
            slots=num_envs,
            max_batch=num_envs,
            seed=seed,
            greedy=greedy,
        )
        # Values, because TensorFlow would read a variable anew in each step.
        self._params = [ops.copy(v) for v in policy.agent.model.trainable_variables]
        self._slots = np.arange(num_envs, dtype=np.int32)
        self._action = policy.spec.action.none(num_envs)

    def act(self, step: TimeStep) -> NDArray[Any]:
        """Return actions [E, *action] for the newest time step. A `first` step resets the state."""
        flags = step.first.astype(np.uint8) * np.uint8(FIRST)
        inputs = StepInputs(self._slots, step.observation, flags, step.reward, self._action)
        self._action = self._inference.run(self._params, [inputs]).action
        return self._action
