"""Spaces of Gymnasium: as specs, and the conversion of observations and actions."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
)
from numpy.typing import NDArray

from seedbed.envs.failures import NOT_FINITE, WRONG_SHAPE, EnvironmentFault
from seedbed.envs.judge import described, is_masked
from seedbed.envs.pictures import CHANNELS_LAST, Picture, channels_first, picture_of
from seedbed.packed import ACTION_MASK, MAX_CATEGORIES, MAX_ENTRIES, MAX_NAME, Entry, PackedSpec
from seedbed.spec import MAX_ACTIONS, ActionSpec, ArraySpec

log = logging.getLogger(__name__)

_AXES = 3
_WHOLE = "the observation"
# A width of a continuous action from which its bounds are taken for none.
_NO_BOUND = 1e6
BOUND_ACTIONS = (
    "such as by gymnasium.wrappers.TransformAction(env, lambda action: action, "
    "gymnasium.spaces.Box(-1, 1, env.action_space.shape))"
)


class UnsupportedSpace(Exception):
    """Space that cannot be sent, in words that begin with the space."""


class ActionWriter:
    """Converts actions of the policy to those of an environment.

    Args:
        space: the environment's action space: Discrete, MultiDiscrete, MultiBinary or a bounded
            Box of floats.

    Attributes:
        spec: the action space as the learner has it.
        warnings: what is taken as it is, and is hardly meant.

    Raises:
        UnsupportedSpace: the space is another one.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.write: Callable[[Any], Any]
        self.warnings: list[str] = []
        if isinstance(space, Discrete):
            first = int(space.start)
            self.spec = ActionSpec.discrete(int(space.n))
            self.write = lambda chosen: chosen + first
        elif isinstance(space, MultiDiscrete | MultiBinary):
            parts: Any = space
            binary = isinstance(space, MultiBinary)
            sizes = np.full(parts.shape, 2) if binary else np.asarray(parts.nvec)
            start = 0 if binary else np.asarray(parts.start)
            self.spec = ActionSpec("multi_discrete", tuple(int(n) for n in sizes.ravel()))
            self.write = lambda chosen: (np.reshape(chosen, sizes.shape) + start).astype(
                space.dtype
            )
        elif isinstance(space, Box) and space.dtype is not None and space.dtype.kind == "f":
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                widths = high - low
            if not np.isfinite(widths).all():
                raise UnsupportedSpace(
                    f"the action space is {space}, which has no bounds to scale to: bound it, "
                    f"{BOUND_ACTIONS}"
                )
            widest = float(np.max(widths, initial=0.0))
            if widest >= _NO_BOUND:
                self.warnings.append(
                    f"the bounds of {space} are {widest:.3g} apart, which is no bound: actions of "
                    f"the policy are scaled to it; bound the space, {BOUND_ACTIONS}"
                )
            self.spec = ActionSpec("continuous", (int(np.prod(space.shape, dtype=int)),))
            self.write = lambda chosen: np.clip(
                low + (np.reshape(chosen, low.shape).astype(np.float64) + 1) / 2 * (high - low),
                *(low, high),
            ).astype(space.dtype)
        else:
            raise UnsupportedSpace(
                f"the action space is {space}, but only Discrete, MultiDiscrete, MultiBinary and a "
                "Box of floats are supported: name a `module:factory` that flattens it"
            )
        if not 1 <= self.spec.width <= MAX_ACTIONS:
            raise UnsupportedSpace(
                f"the action space is {space}, of {self.spec.width} actions in all, and 1 to "
                f"{MAX_ACTIONS} are supported"
            )


class ObservationReader:
    """Converts observations of an environment to arrays, or to packed rows.

    A Box of one to three axes is sent as it is. Any other space is packed: boxes, Discrete,
    MultiDiscrete and MultiBinary in dictionaries and tuples, however nested. A MultiBinary takes a
    bit for each number. Text is left out.

    Args:
        space: the environment's observation space.
        masks: A of the mask that `info["action_mask"]` holds; 0: none is there.

    Attributes:
        spec: the observation as the learner knows it.

    Raises:
        UnsupportedSpace: an entry cannot be sent.
    """

    def __init__(self, space: Space[Any], masks: int = 0) -> None:
        self._leaves: list[_Leaf] = []
        if isinstance(space, Box) and not masks:
            leaf = _Leaf(_WHOLE, space, (), in_dictionary=False)
            if not space.shape:
                raise UnsupportedSpace(
                    "the observation's shape [] has 0 axes, but 1 to 3 are supported"
                )
            self._leaves.append(leaf)
            self.spec = leaf.entry.array
            return
        for path, leaf_space in _leaves_of(space):
            name = ".".join(map(str, path)) or "observation"
            # MiniGrid's missions are a space of their own.
            if leaf_space.dtype is not None and leaf_space.dtype.kind == "U":
                log.warning("the observation's entry %s is text, and is left out", name)
                continue
            self._leaves.append(_Leaf(name, leaf_space, path))
        self._mask = masks
        entries = [leaf.entry for leaf in self._leaves]
        if masks:
            entries.append(Entry(ACTION_MASK, ArraySpec((masks,), "uint8")))
        names = [entry.name for entry in entries]
        if len(set(names)) < len(names):
            raise UnsupportedSpace(
                f"the observation space is {space}, with an entry twice: {names}"
            )
        longest = max(map(len, names), default=0)
        if len(names) > MAX_ENTRIES or longest > MAX_NAME:
            raise UnsupportedSpace(
                f"the observation space has {len(names)} entries with names of up to {longest} "
                f"characters, and at most {MAX_ENTRIES} of {MAX_NAME} are sent: join or drop some"
            )
        if not self._leaves:
            raise UnsupportedSpace(f"the observation space is {space}, which has nothing to send")
        self.spec = PackedSpec.of(entries)

    @property
    def notes(self) -> tuple[list[str], list[str]]:
        """What image networks see of pictures, and what is hardly meant, in words."""
        seen, warnings = [], []
        for leaf in self._leaves:
            entry, picture = leaf.entry, leaf.picture
            if picture is None:
                continue
            name = leaf.title
            seen.append(f"{name}: {picture.seen}")
            if channels_first(picture.shape):
                text = f"{name} is {list(picture.shape)}: channels first? {CHANNELS_LAST}"
                warnings.append(text)
            elif entry.name != _WHOLE and not entry.is_image and len(picture.shape) == 3:
                warnings.append(
                    f"{name} is of {entry.array.dtype}, which no image network takes from a "
                    "dictionary, so that its numbers go through dense layers: give bytes of 0 to "
                    "255 in a Box of uint8"
                )
        return seen, warnings

    def sees(self, observations: NDArray[Any]) -> list[tuple[str, float, float]]:
        """Return what image networks see of pictures: the name, the lowest and the highest number.

        Args:
            observations: [..., *shape] of the spec.
        """
        arrays = {_WHOLE: observations}
        if isinstance(self.spec, PackedSpec):
            arrays = self.spec.unpack(observations)
        return [
            (leaf.title, *leaf.picture.sees(arrays[leaf.entry.name]))
            for leaf in self._leaves
            if leaf.picture is not None
        ]

    def read(self, observation: Any, info: Mapping[str, Any]) -> NDArray[Any]:
        """Return an observation [*shape]. Allows casts within a kind, such as float64 to float32.

        Raises:
            EnvironmentFault: it is of another shape or kind than its space, or not finite.
        """
        if not isinstance(self.spec, PackedSpec):
            return self._leaves[0].read(observation)
        arrays = {leaf.entry.name: leaf.read(leaf.find(observation)) for leaf in self._leaves}
        if self._mask:
            arrays[ACTION_MASK] = self._read_mask(info)
        return self.spec.pack(arrays)

    def _read_mask(self, info: Mapping[str, Any]) -> NDArray[np.uint8]:
        if ACTION_MASK not in info:
            raise EnvironmentFault(
                WRONG_SHAPE,
                f"info has no {ACTION_MASK!r}, and environment.action_mask is true: it has "
                f"{sorted(map(str, info)) or 'nothing'}",
            )
        mask = np.asarray(info[ACTION_MASK])
        if mask.shape != (self._mask,) or mask.dtype.kind not in "bui":
            raise EnvironmentFault(
                WRONG_SHAPE,
                f"info[{ACTION_MASK!r}] is {mask.dtype}{list(mask.shape)}, and there are "
                f"{self._mask} actions",
            )
        valid: NDArray[np.uint8] = (mask != 0).astype(np.uint8)
        return valid


class _Leaf:
    """One array of an observation space."""

    def __init__(
        self, name: str, space: Space[Any], path: tuple[Any, ...], in_dictionary: bool = True
    ) -> None:
        self._name, self._path = name, path
        self._sizes = self._start = np.asarray(0)
        self.picture: Picture | None = None
        if isinstance(space, Box | MultiBinary) and name != ACTION_MASK:
            self.picture = picture_of(space, in_dictionary)
        categories = 0
        if isinstance(space, Discrete):
            shape: tuple[int, ...] = ()
            dtype, categories = "int32", int(space.n)
            self._sizes, self._start = np.asarray(categories), np.asarray(space.start)
        elif isinstance(space, MultiDiscrete):
            shape, dtype, categories = space.shape, "int32", int(space.nvec.max())
            self._sizes, self._start = np.asarray(space.nvec), np.asarray(space.start)
        elif isinstance(space, MultiBinary):
            shape, dtype = space.shape, "bool"
        elif isinstance(space, Box) and space.dtype is not None:
            shape = space.shape
            if space.dtype.kind not in "biuf":
                _refuse(
                    name,
                    space,
                    f"of dtype {space.dtype}, but only bool, integers and floats are supported",
                )
            dtype = "uint8" if space.dtype in (np.uint8, np.bool_) else "float32"
            if self.picture is not None:
                dtype = self.picture.dtype or dtype
        else:
            _refuse(name, space, "which cannot be sent: drop or flatten it")
        if len(shape) > _AXES:
            raise UnsupportedSpace(
                f"{name}'s shape {list(shape)} has {len(shape)} axes, but 1 to 3 are supported"
            )
        if categories > MAX_CATEGORIES:
            _refuse(name, space, f"of more than {MAX_CATEGORIES} categories: give it as a Box")
        if 0 in shape:
            raise UnsupportedSpace(f"{name}'s shape {list(shape)} holds no number")
        # Of whatever dtype the environment has it, a mask is sent as zeros and ones.
        self._is_mask = name == ACTION_MASK
        if self._is_mask:
            dtype, categories = "uint8", 0
        self._space_dtype: np.dtype[Any] = np.dtype(space.dtype)
        self.entry = Entry(name, ArraySpec(tuple(map(int, shape)), dtype), categories)

    @property
    def title(self) -> str:
        """The name of a picture, in words."""
        return "the picture" if self._name == _WHOLE else f"the picture {self._name}"

    def find(self, observation: Any) -> Any:
        """Return the leaf's part of an observation."""
        for key in self._path:
            try:
                observation = observation[key]
            except (KeyError, IndexError, TypeError) as error:
                raise EnvironmentFault(
                    WRONG_SHAPE,
                    f"an observation has no entry {self._name}, but its space says so",
                ) from error
        return observation

    def read(self, value: Any) -> NDArray[Any]:
        """Return the array of the spec, which holds the same numbers.

        Raises:
            EnvironmentFault: the value is of another shape or kind than its space, or a number of
                it is not finite, is none of its space, or does not survive the conversion.
        """
        spec, space_dtype = self.entry.array, self._space_dtype
        what = "an observation" if self._name == _WHOLE else f"the entry {self._name}"
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise EnvironmentFault(WRONG_SHAPE, f"{what} is no array: {error}") from error
        if is_masked(value):
            raise EnvironmentFault(NOT_FINITE, f"{what} is {described(value)}, which are none")
        if self.entry.categories:
            fits = array.dtype.kind in "biu"
        else:
            whole = array.dtype.kind in "biu" and space_dtype.kind in "biu"
            fits = whole or np.can_cast(array.dtype, space_dtype, "same_kind")
        if array.shape != spec.shape or not fits:
            raise EnvironmentFault(
                WRONG_SHAPE,
                f"{what} is {array.dtype}{list(array.shape)}, but its "
                f"space says {space_dtype}{list(spec.shape)}: correct one of them",
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise EnvironmentFault(NOT_FINITE, f"{what} holds NaN or infinite numbers")
        if self._is_mask:
            valid: NDArray[Any] = (array != 0).astype(spec.dtype)
            return valid
        if self.entry.categories:
            number: NDArray[Any] = _kept(array, np.dtype(np.int64), what) - self._start
            if (number < 0).any() or (number >= self._sizes).any():
                raise EnvironmentFault(
                    WRONG_SHAPE,
                    f"{what} is {np.asarray(value).tolist()}, which is none of the "
                    f"{np.max(self._sizes)} values of its space",
                )
            return number.astype(spec.dtype)
        kept = _kept(array, space_dtype, what)
        if self.picture is not None:
            if (beyond := self.picture.beyond(kept)) is not None:
                raise EnvironmentFault(
                    WRONG_SHAPE,
                    f"{what} holds {beyond:.3g}, and its space is {self.picture.low:g} to "
                    f"{self.picture.high:g}: correct one of them",
                )
            kept = self.picture.scale(kept)
        kept = _kept(kept, np.dtype(spec.dtype), what)
        return kept.copy() if np.may_share_memory(kept, array) else kept


def _kept(array: NDArray[Any], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Convert to another dtype; floats are rounded, and nothing else is lost.

    Raises:
        EnvironmentFault: a number does not survive, with the number.
    """
    if np.can_cast(array.dtype, dtype, "safe"):  # int64 to float64 is, for NumPy
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
        if array.dtype.kind == "f":
            lost = np.isfinite(array) & ~np.isfinite(converted)
        else:
            # -1 of int8 comes back from uint8, which has it as 255.
            lost = (converted.astype(array.dtype) != array) | ((converted < 0) != (array < 0))
    if lost.any():
        number = array[lost].ravel()[0]
        raise EnvironmentFault(
            NOT_FINITE if array.dtype.kind == "f" else WRONG_SHAPE,
            f"{what} holds {number} of {array.dtype}, which {dtype} cannot hold: it is sent as "
            f"{dtype}; scale it, or correct its space",
        )
    return converted


def _refuse(name: str, space: Space[Any], why: str) -> NoReturn:
    where = "the observation space" if name in (_WHOLE, "observation") else f"the entry {name}"
    raise UnsupportedSpace(f"{where} is {space}, {why}")


def _leaves_of(space: Space[Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Space[Any]]]:
    """Yield the spaces that are not nested, each with the keys that lead there."""
    if isinstance(space, Dict):
        for key, inner in space.spaces.items():
            yield from _leaves_of(inner, (*path, key))
    elif isinstance(space, Tuple):
        for i, inner in enumerate(space.spaces):
            yield from _leaves_of(inner, (*path, i))
    else:
        yield path, space
