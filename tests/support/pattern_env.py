"""A vector environment whose observations describe its history, so that tests can check steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.packed import ACTION_MASK, PackedSpec
from seedbed.spec import ActionSpec, ArraySpec, EnvironmentSpec, TimeStep

NAME = "tests:pattern"
ACTIONS = 5


def digest(action: NDArray[Any], space: ActionSpec) -> NDArray[Any]:
    """One whole number below 200 for each action [..., *action]."""
    if space.kind == "discrete":
        return action
    if space.kind == "multi_discrete":
        return action @ (10 ** np.arange(len(space.sizes)))
    return np.rint(np.clip(90 * action.mean(axis=-1) + 95, 0, 199))


def reward_of(flat: NDArray[Any]) -> NDArray[np.float64]:
    """The reward of a step [...] from the flat observation [..., n >= 5] that came with it.

    The digest, plus a hundredth of the counter, plus 0.002 of the first number of noise.
    """
    scale = 255 if flat.dtype == np.uint8 else 1
    action, counter, noise = (flat[..., i].astype(np.float64) for i in (2, 1, 4))
    return action + 0.01 * counter + 0.002 * noise / scale


class PatternVectorEnv:
    """Episodes end, are cut and restart at random; everything else follows from the history.

    Each observation begins with four numbers: the environment's number, a step counter that goes
    on over episodes (modulo 200), the digest of the action that led here (0 on first rows), and
    the episode's number (modulo 200). The rest is noise. The reward is `reward_of` the observation:
    its noise tells apart sequences of equal actions. A packed observation may hold a mask, whose
    actions alone are taken.
    """

    failures: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self,
        num_envs: int,
        number: int,
        shape: tuple[int, ...] = (),
        dtype: str = "",
        visit: int = 0,
        observation: ArraySpec | None = None,
        space: ActionSpec | None = None,
    ) -> None:
        self.num_envs = num_envs
        actions = ACTIONS if space is None else space.width
        array = observation or ArraySpec(shape, dtype)
        self.spec = EnvironmentSpec(NAME, array, actions, 2, space)
        self._mask = np.ones((num_envs, actions), np.uint8)
        self._random = np.random.default_rng((number, visit))
        self._numbers = number + np.arange(num_envs)
        self._counter = np.zeros(num_envs, np.int64)
        self._episode = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, bool)

    def reset_again(self) -> TimeStep:
        return self.reset()

    def reset(self) -> TimeStep:
        """Every row is first."""
        self._episode += 1
        self._ended[:] = False
        return self._frame(np.zeros(self.num_envs, np.int32), np.ones(self.num_envs, bool))

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        """Rows after a finished one are first; now and then one is so without."""
        assert action.shape == (self.num_envs, *self.spec.action.array.shape)
        assert self.spec.action.wrong(action) is None
        if self.spec.space is None:
            assert self._mask[np.arange(self.num_envs), action].all(), "a masked action"
        crashed = self._random.random(self.num_envs) < 0.03
        first = self._ended | crashed
        self._episode += first
        self._counter += 1
        return self._frame(np.where(first, 0, digest(action, self.spec.action)), first)

    def close(self) -> None:
        """Nothing to give back."""

    def _packed(self, spec: PackedSpec) -> NDArray[np.uint8]:
        """Noise of each entry's kind; a new mask."""
        rows = []
        for i in range(self.num_envs):
            arrays = {}
            for entry in spec.entries:
                high = entry.categories or 256
                noise = self._random.integers(0, high, entry.array.shape)
                arrays[entry.name] = noise.astype(entry.array.dtype)
                if entry.array.dtype == "float32":
                    arrays[entry.name] /= 255
                if entry.name == ACTION_MASK:
                    arrays[entry.name] = self._mask[i] = noise % 2
            rows.append(spec.pack(arrays))
        # Where no action is valid, all are.
        self._mask[~self._mask.any(axis=1)] = 1
        return np.stack(rows)

    def _frame(self, action: NDArray[np.int32], first: NDArray[np.bool_]) -> TimeStep:
        e, spec = self.num_envs, self.spec.observation
        chance = np.where(first, 1.0, self._random.random(e))
        terminated = chance < 0.06
        truncated = (chance >= 0.06) & (chance < 0.12)
        self._ended = terminated | truncated
        noise = self._random.integers(0, 256, (e, *spec.shape))
        observation = noise.astype(spec.dtype)
        if isinstance(spec, PackedSpec):
            observation = self._packed(spec)
        if spec.dtype != "uint8":
            observation = (observation / 255).astype(spec.dtype)
        flat = observation.reshape(e, -1)
        flat[:, 0], flat[:, 1] = self._numbers, self._counter % 200
        flat[:, 2], flat[:, 3] = action, self._episode % 200
        return TimeStep(
            observation=observation,
            reward=np.where(first, 0, reward_of(flat)).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=~first & (self._random.random(e) < 0.1),
            first=first,
        )
