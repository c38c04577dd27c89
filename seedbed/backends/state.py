"""A trainer's state by name, the same under both backends."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError

if TYPE_CHECKING:  # Keras is imported by `use`, once its backend is chosen
    import keras

# Keras has a variable for a constant learning rate. It is a setting: a run that resumes with
# another one uses the new one.
SETTINGS = frozenset({"optimizer/learning_rate"})


def named_variables(
    model: "keras.Model", optimizer: "keras.optimizers.Optimizer"
) -> tuple[list[str], list[str]]:
    """Return `model/PATH` of the trainable variables and `optimizer/PATH` of the optimizer's.

    Args:
        model: the model, built.
        optimizer: the optimizer; it has no variables but its own until it is built.

    Raises:
        SeedbedError: CONFIG: two variables have the same name.
    """
    model_names = [f"model/{_below(v.path, model.name)}" for v in model.trainable_variables]
    optimizer_names = [f"optimizer/{_below(v.path, optimizer.name)}" for v in optimizer.variables]
    for names in (model_names, optimizer_names):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"variables with the same name {twice}: give the network's layers names of "
                "their own, or a checkpoint could not tell them apart"
            )
    return model_names, optimizer_names


def checked(
    names: list[str], like: list[Any], state: Mapping[str, NDArray[Any]], prefix: str
) -> list[NDArray[Any]]:
    """Return the arrays of `names` out of a checkpoint's state, cast to the dtypes here.

    Args:
        names: names that `state` must have below `prefix`, and no others.
        like: arrays of the same shapes and dtypes, in the order of `names`.
        state: arrays by name.
        prefix: `model/`, `optimizer/` or `target/`.

    Raises:
        SeedbedError: CHECKPOINT_READ: names or shapes differ.
    """
    given = {name for name in state if name.startswith(prefix)} - SETTINGS
    missing, extra = sorted(set(names) - given), sorted(given - set(names))
    if missing or extra:
        raise SeedbedError(
            ExitCode.CHECKPOINT_READ,
            f"the checkpoint is of another network or optimizer: missing {missing}, not known "
            f"here {extra}",
        )
    arrays = []
    for name, own in zip(names, like, strict=True):
        array = np.asarray(state[name])
        shape = tuple(own.shape)
        if array.shape != shape:
            raise SeedbedError(
                ExitCode.CHECKPOINT_READ,
                f"{name} has shape {list(array.shape)} in the checkpoint and {list(shape)} here: "
                "the network or the environment's spaces differ",
            )
        # The dtypes of NumPy and of TensorFlow have names; that of a Keras variable is one.
        arrays.append(array.astype(getattr(own.dtype, "name", own.dtype)))
    return arrays


def _below(path: str, root: str) -> str:
    return path.removeprefix(root + "/")
