"""What an agent is: a model, how it acts, and what it minimises. Pure functions of arrays.

Axes: `N` rows of an inference batch, `R = T + 1` rows of an unroll, `B` columns, `A` actions,
`S` the size of the recurrent state (0 without a recurrent core). Time-major everywhere.
`Tensor` is an array of whatever backend runs.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import keras
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor


class ActInputs(NamedTuple):
    """One inference batch."""

    observation: Tensor  # [N, *stacked shape], the environment's dtype
    previous_action: Tensor  # [N] int32, -1 on an episode's first row
    previous_reward: Tensor  # [N] float32, 0 on an episode's first row
    first: Tensor  # [N] bool
    slot: Tensor  # [N] int32, for agents that act differently by slot
    noise: Tensor  # [N, noise_columns] float32, uniform in [0, 1), drawn on the host


class ActOutputs(NamedTuple):
    """What acting gives."""

    action: Tensor  # [N] int32
    behaviour: dict[str, Tensor]  # [N, ...] each, as `Agent.behaviour` says
    state: Tensor  # [N, S] float32


class Unroll(NamedTuple):
    """One training batch. Row t holds what arrived with observation t; the transition from row t
    to row t+1 earned `reward[t + 1]`. It is real unless `first[t + 1]`.
    """

    observation: Tensor  # [R, B, *stacked shape]
    previous_action: Tensor  # [R, B] int32, -1 on first rows
    previous_reward: Tensor  # [R, B] float32, 0 on first rows
    action: Tensor  # [T, B] int32
    reward: Tensor  # [R, B] float32, raw
    terminated: Tensor  # [R, B] bool
    truncated: Tensor  # [R, B] bool
    life_lost: Tensor  # [R, B] bool
    first: Tensor  # [R, B] bool
    behaviour: dict[str, Tensor]  # [T, B, ...] each, from the very call that chose the action
    state: Tensor  # [B, S] float32, the recurrent state before row 0


class Window(NamedTuple):
    """What the host knows of E new sequences, in NumPy: a sequence's rows without its frames."""

    trained: int  # T, transitions that count, after the burn-in
    action: NDArray[np.int32]  # [R, E]
    reward: NDArray[np.float32]  # [R, E]
    terminated: NDArray[np.bool_]  # [R, E]
    life_lost: NDArray[np.bool_]  # [R, E]
    first: NDArray[np.bool_]  # [R, E]
    behaviour: dict[str, NDArray[Any]]  # [R, E, ...] each


class Body(Protocol):
    """The network below an agent's heads: torso, then optionally an LSTM."""

    state_size: int
    features: int

    def prepare(self, frame: Tensor) -> Tensor:
        """Parameter-free change of layout of single frames [N, *shape], done once a frame."""

    def zeros(self, rows: int = 1, columns: int = 1) -> tuple[Tensor, ...]:
        """The arguments of a call, all zeros; what an agent builds its model with."""

    def __call__(
        self,
        observation: Tensor,  # [R, B, *stacked shape]
        previous_action: Tensor,  # [R, B] int32
        previous_reward: Tensor,  # [R, B] float32
        first: Tensor,  # [R, B] bool: the state is zeroed before this row
        state: Tensor,  # [B, S]
    ) -> tuple[Tensor, Tensor]:
        """Return features [R, B, F] and the state after the last row [B, S]."""


class Agent(Protocol):
    """Make one with `Class(options, body, actions)`.

    Attributes:
        Options: a pydantic model of the hyperparameters.
        model: a built `keras.Model` (body and heads); its trainable variables are `Params`.
        body: as given.
        noise_columns: how many uniform numbers a row of `act` needs.
        behaviour: what the unroll keeps of acting, by name, for one row.
        evaluates: how it plays where `evaluation.policy` leaves it to the agent.
    """

    Options: type[BaseModel]
    model: keras.Model
    body: Body
    noise_columns: int
    behaviour: dict[str, ArraySpec]
    evaluates: Literal["sample", "greedy"]

    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        """Choose actions. `greedy` is fixed when the function is compiled."""


class OnPolicyAgent(Agent, Protocol):
    """An agent that trains on each unroll as it comes.

    Attributes:
        synchronous: every batch holds one unroll of every environment of the learner, made by the
            newest parameters. May be absent, which is False.
    """

    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss and scalars to log."""


class ReplayAgent(Agent, Protocol):
    """An agent that trains on sequences drawn from replay. What has `initial_priority` is one.

    Attributes:
        burn_in: transitions of a sequence that only warm up the recurrent state.
        lookahead: transitions after the trained ones that only complete their targets.
        target_update_period: updates after which the target network takes the parameters over.
    """

    burn_in: int
    lookahead: int
    target_update_period: int

    def initial_priority(self, window: Window) -> NDArray[np.float32]:
        """Priorities [E] of new sequences, from what acting computed. NumPy, on the host."""

    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """The loss of a batch with importance weights [B], scalars to log, priorities [B]."""
