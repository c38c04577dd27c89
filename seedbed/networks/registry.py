"""Body of a network by its name or `module:Class`."""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from seedbed.networks import AUTO, NETWORKS
from seedbed.networks.body import Body
from seedbed.networks.entries import EntriesTorso
from seedbed.networks.image import is_channels_first
from seedbed.networks.impala import ImpalaShallow
from seedbed.networks.mlp import Mlp
from seedbed.networks.statistics import ObservationNormalizer
from seedbed.ops.frame_stack import stacked_shape
from seedbed.packed import PackedSpec
from seedbed.runtime.exit_codes import ConfigError, SeedbedError
from seedbed.spec import ActionSpec, ArraySpec


def make_body(
    network: str,
    options: dict[str, Any],
    frame: ArraySpec,
    actions: int | ActionSpec,
    frame_stack: int,
    lstm_units: int,
    precision: str = "float32",
    initial_weights: str = "default",
    normalize: bool = False,
) -> Body:
    """Build the body of `learner.network`.

    A network is a `keras.layers.Layer` that maps stacked observations [N, *stacked shape], in the
    environment's dtype, to features [N, F]. It may have `prepare(frame)`, a parameter-free change
    of layout of single frames [N, *shape], and `observe(frame, frame_stack)`, called once with the
    `ArraySpec` of a single frame before any other method, to refuse frames that do not fit.

    Args:
        network: a name of `NETWORKS`, or `module:Class`.
        options: `learner.network_options`.
        frame: a single frame of the environment.
        actions: the action space, or A of a discrete one.
        frame_stack: K.
        lstm_units: units of the LSTM core; 0 is a feed-forward body.
        precision: `learner.precision`.
        initial_weights: `learner.initial_weights`.
        normalize: whether running statistics normalize observations.

    Raises:
        SeedbedError: CONFIG: there is no such network, its options are wrong, or it does not fit.
    """
    network = network_of(network, frame)
    with _policy(precision):
        body = _body(
            network, options, frame, actions, frame_stack, lstm_units, initial_weights, normalize
        )
    body.network = network
    return body


def network_of(network: str, frame: ArraySpec) -> str:
    """Return the name of a network, of `auto` that which suits the observation.

    Args:
        network: `learner.network`.
        frame: a single frame.
    """
    if network != AUTO:
        return network
    arrays = [frame]
    if isinstance(frame, PackedSpec):
        arrays = [entry.array for entry in frame.entries if entry.is_image]
    return "impala_shallow" if arrays and all(map(_is_picture, arrays)) else "mlp"


def _is_picture(array: ArraySpec) -> bool:
    """Return whether an array is a picture that a convolution of `impala_shallow` fits."""
    if len(array.shape) not in (2, 3):
        return False
    height, width = array.shape[:2]
    if len(array.shape) == 3 and is_channels_first(array.shape):
        height, width = array.shape[1:]  # refused by name
    return min(height, width) >= ImpalaShallow.smallest


def _torso(network: str, options: dict[str, Any], frame: ArraySpec, frame_stack: int) -> Any:
    """Make the torso; of a packed observation, an encoder for each picture and one for the rest."""
    if not isinstance(frame, PackedSpec):
        return _make(network, options)
    if network == "mlp":
        return EntriesTorso(frame, frame_stack, None, lambda: _make(network, options))
    return EntriesTorso(frame, frame_stack, lambda: _make(network, options), Mlp)


@contextmanager
def _policy(precision: str) -> Iterator[None]:
    """Give layers made here, a user's too, the dtype policy of a precision.

    Keras keeps the policy in force for each thread. Variables are float32 in any of them.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else "float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _body(
    network: str,
    options: dict[str, Any],
    frame: ArraySpec,
    actions: int | ActionSpec,
    frame_stack: int,
    lstm_units: int,
    initial_weights: str,
    normalize: bool,
) -> Body:
    torso = _torso(network, options, frame, frame_stack)
    observe = getattr(torso, "observe", None)
    if observe is not None:
        observe(frame, frame_stack)
    prepared = prepared_frame(torso, frame)
    stacked = ArraySpec(stacked_shape(prepared.shape, frame_stack), prepared.dtype)
    normalizer = None
    if normalize and not isinstance(frame, PackedSpec):
        normalizer = ObservationNormalizer(frame, frame_stack, _is_picture(frame))
    try:
        body = Body(torso, stacked, actions, lstm_units, initial_weights, frame, normalizer)
    except SeedbedError:
        raise
    except Exception as error:
        raise ConfigError(
            f"learner.network {network!r} cannot be built on observations {stacked} "
            f"({frame_stack} stacked frames {frame}): {error}"
        ) from error
    stateful = body.non_trainable_variables
    if stateful:
        raise ConfigError(
            f"learner.network {network!r} has variables that training does not change: "
            f"{[v.path for v in stateful]}. Networks are pure functions of their weights here: no "
            "dropout, no batch normalisation"
        )
    return body


def prepared_frame(torso_or_body: Any, frame: ArraySpec) -> ArraySpec:
    """Return the spec of one prepared frame, as inference keeps it in its table.

    Args:
        torso_or_body: what prepares it; a torso without `prepare` leaves it as it is.
        frame: a single frame of the environment.
    """
    prepare = getattr(torso_or_body, "prepare", None)
    if prepare is None:
        return frame
    zeros = keras.ops.zeros((1, *frame.shape), frame.dtype)
    row = prepare(zeros)
    return ArraySpec(tuple(row.shape[1:]), keras.backend.standardize_dtype(row.dtype))


def load_class(path: str, key: str) -> Any:
    """Import a class.

    Args:
        path: `module:Class`.
        key: the setting's name, for the error.

    Raises:
        SeedbedError: CONFIG: the class cannot be imported.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key} {path!r} cannot be loaded: {error}") from error


def _make(network: str, options: dict[str, Any]) -> Any:
    if ":" not in network and network not in NETWORKS:
        raise ConfigError(
            f"learner.network {network!r} is unknown: one of {sorted(NETWORKS)}, or module:Class"
        )
    torso_class = load_class(NETWORKS.get(network, network), "learner.network")
    if not (inspect.isclass(torso_class) and issubclass(torso_class, keras.layers.Layer)):
        raise ConfigError(
            f"learner.network {network!r} is no subclass of keras.layers.Layer: {torso_class!r}"
        )
    signature = inspect.signature(torso_class)
    names = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    free = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    unknown = sorted(set(options) - set(names))
    if unknown and not free:
        raise ConfigError(
            f"learner.network_options {unknown} unknown to {network!r}, which takes "
            f"{sorted(names) or 'none'}"
        )
    try:
        return torso_class(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"learner.network_options {options} of {network!r}: {error}") from error
