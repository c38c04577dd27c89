"""Interface of agents: a model, how it acts, and the loss it minimizes. Pure functions of arrays.

Axes, time-major everywhere:

- `N`: environments of an inference batch.
- `T`: transitions of an unroll, and `R = T + 1` its time steps.
- `B`: unrolls of a training batch, one of each environment.
- `A`: actions.
- `S`: size of the recurrent state, 0 without a recurrent core.
"""

from typing import Any, Literal, NamedTuple, Protocol

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from pydantic import BaseModel

from seedbed.networks.body import Body
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor


class ActInputs(NamedTuple):
    """Inputs of acting: one inference batch."""

    observation: Tensor  # [N, *stacked shape], the environment's dtype
    previous_action: Tensor  # [N, *action], `ActionSpec.none` on an episode's first step
    previous_reward: Tensor  # [N] float32, 0 on an episode's first step
    first: Tensor  # [N] bool
    slot: Tensor  # [N] int32, for agents that act differently by slot
    noise: Tensor  # [N, noise_columns] float32, uniform in [0, 1), drawn on the host

    def one_step(self) -> tuple[Tensor, ...]:
        """Return the inputs of `Body` for R = 1, without the state."""
        inputs = (self.observation, self.previous_action, self.previous_reward, self.first)
        return tuple(ops.expand_dims(x, 0) for x in inputs)


class ActOutputs(NamedTuple):
    """Outputs of acting."""

    action: Tensor  # [N, *action], int32 or float32 as of `ActionSpec.array`
    behaviour: dict[str, Tensor]  # [N, ...] each, as in `Agent.behaviour`
    state: Tensor  # [N, S] float32


class Unroll(NamedTuple):
    """One training batch.

    Step t holds what arrived with observation t. The transition from step t to step t+1 earned
    `reward[t + 1]`, and is real unless `first[t + 1]`.
    """

    observation: Tensor  # [R, B, *stacked shape]
    previous_action: Tensor  # [R, B, *action], `ActionSpec.none` on first steps
    previous_reward: Tensor  # [R, B] float32, 0 on first steps
    action: Tensor  # [T, B, *action]
    reward: Tensor  # [R, B] float32, raw
    terminated: Tensor  # [R, B] bool
    truncated: Tensor  # [R, B] bool
    life_lost: Tensor  # [R, B] bool
    first: Tensor  # [R, B] bool
    behaviour: dict[str, Tensor]  # [T, B, ...] each, of the call that chose the action
    state: Tensor  # [B, S] float32, the recurrent state before step 0

    def steps(self) -> tuple[Tensor, ...]:
        """Return the inputs of `Body` for all R steps, without the state."""
        return self.observation, self.previous_action, self.previous_reward, self.first


class SequenceWindow(NamedTuple):
    """The steps of E new sequences without their observations, as NumPy arrays on the host."""

    trained: int  # T, transitions that count, after the burn-in
    action: NDArray[np.int32]  # [R, E]
    reward: NDArray[np.float32]  # [R, E]
    terminated: NDArray[np.bool_]  # [R, E]
    life_lost: NDArray[np.bool_]  # [R, E]
    first: NDArray[np.bool_]  # [R, E]
    behaviour: dict[str, NDArray[Any]]  # [R, E, ...] each


class Agent(Protocol):
    """A model with two pure functions, `act` and `loss`.

    Created by `Class(options, body, actions)`. Subclass `OnPolicyAgent` or `ReplayAgent`.

    Attributes:
        Options: a pydantic model of the hyperparameters.
        model: a built `keras.Model` (body and heads); its trainable variables are `Params`.
        body: as given.
        noise_columns: uniform numbers that `act` needs for each environment.
        behaviour: arrays of acting that the unroll keeps: name to spec for one environment.
        evaluates: how actions are chosen where `evaluation.policy` is `agent`.
        trains_from_replay: the agent is a `ReplayAgent`.
        synchronous: every batch holds one unroll of every environment of the learner, acted by
            the newest parameters.
        target_update_period: updates after which the target network is set to the parameters;
            0 is an agent without a target network.
    """

    Options: type[BaseModel]
    model: keras.Model
    body: Body
    noise_columns: int
    behaviour: dict[str, ArraySpec]
    evaluates: Literal["sample", "greedy"] = "sample"
    trains_from_replay: bool = False
    synchronous: bool = False
    target_update_period: int = 0

    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        """Choose actions.

        Args:
            params: the parameters that act.
            inputs: one inference batch.
            state: [N, S] float32.
            greedy: choose as in evaluation. Fixed when the function is compiled.
        """


class OnPolicyAgent(Agent, Protocol):
    """An agent that trains on each unroll once, soon after it was acted."""

    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss and scalars to log."""


class ReplayAgent(Agent, Protocol):
    """An agent that trains on sequences sampled from replay.

    Attributes:
        burn_in: transitions of a sequence that only warm up the recurrent state.
        lookahead: transitions after the trained ones that only complete their targets.
    """

    trains_from_replay: bool = True
    burn_in: int = 0
    lookahead: int = 0

    def initial_priority(self, window: SequenceWindow) -> NDArray[np.float32]:
        """Return priorities [E] of new sequences from what acting computed, on the host."""

    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, importance_weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Return the scalar loss of a batch, scalars to log, and new priorities [B].

        Args:
            params: the trained parameters.
            target_params: the parameters of the target network.
            unroll: the sampled sequences.
            importance_weight: [B] float32.
        """
