"""A policy that plain Keras loads: `policy.keras`, and what its inputs mean.

The trained network is called once on symbolic inputs, layer by layer, so that the exported model
consists of Keras's own layers and operations and needs nothing of ours. A layer that keeps
weights of its own and is not one of Keras's stays as it is: its class must then
be imported before the model is loaded.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import keras
from keras import ops

from seedbed.agents.actor_critic import INVALID
from seedbed.agents.protocol import Agent
from seedbed.backends.state import checked, named_variables
from seedbed.checkpoints.format import Checkpoint
from seedbed.config import Experiment
from seedbed.export.folder import check_empty
from seedbed.export.readme import readme
from seedbed.factory import build_agent
from seedbed.networks.body import encoded
from seedbed.networks.image import FirstConvolution, scaled
from seedbed.ops.frame_stack import stacked_shape
from seedbed.optimizers import build_optimizer
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.files import atomic_write, replacing
from seedbed.runtime.shortage import cannot_write
from seedbed.spec import EnvironmentSpec
from seedbed.types import Tensor


def load_agent(checkpoint: Checkpoint, experiment: Experiment) -> Agent:
    """Build the agent of a checkpoint with its trained weights. `backends.use` comes first.

    Args:
        checkpoint: the checkpoint.
        experiment: its experiment, as `stored_experiment` returns it.

    Raises:
        SeedbedError: CHECKPOINT_READ where the arrays do not fit the experiment's network.
    """
    agent = build_agent(experiment, checkpoint.spec)
    names, _ = named_variables(agent.model, build_optimizer(experiment, 1))
    variables = agent.model.trainable_variables
    for variable, array in zip(
        variables, checked(names, variables, checkpoint.arrays, "model/"), strict=True
    ):
        variable.assign(array)
    return agent


def export_policy(
    checkpoint: Checkpoint, experiment: Experiment, directory: str | Path
) -> tuple[Path, list[str]]:
    """Write `policy.keras`, `policy.json` and `README.md`. `backends.use` comes first.

    Args:
        checkpoint: the checkpoint.
        experiment: its experiment, as `stored_experiment` returns it.
        directory: new or empty directory of the files.

    Returns:
        Path of `policy.keras`, and each `module:Class` that must be imported before loading it:
        none for our networks.

    Raises:
        SeedbedError: CONFIG: the agent or its network cannot be exported, and why. OUTPUT: a file
            cannot be written.
    """
    # Weights are float32 in any precision, and so is what is exported.
    learner = experiment.learner.model_copy(update={"precision": "float32"})
    agent = load_agent(checkpoint, experiment.model_copy(update={"learner": learner}))
    spec = checkpoint.spec
    model = functional_policy(agent, spec, experiment.learner.frame_stack)
    directory = Path(directory)
    check_empty(directory)
    path = directory / "policy.keras"
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            model.save(temporary)
    except OSError as error:
        if is_new:
            with suppress(OSError):
                directory.rmdir()
        raise cannot_write(path, error) from error
    except Exception as error:
        raise ConfigError(
            f"learner.network {experiment.learner.network!r} cannot be exported: {error}; a layer "
            "with weights of its own needs get_config()"
        ) from error
    foreign = [operation for operation in model.operations if not _is_keras(operation)]
    imports = sorted({f"{type(layer).__module__}:{type(layer).__name__}" for layer in foreign})
    # Name to "dtype[shape]", the leading N aside.
    inputs = {tensor.name: _row(tensor) for tensor in model.inputs}
    outputs = {name: _row(tensor) for name, tensor in model.output.items()}
    changes = [str(change) for change in checkpoint.meta.get("changes", [])]
    about = {
        "changes": changes,
        "inputs": inputs,
        "outputs": outputs,
        "imports": imports,
        "spec": checkpoint.meta["spec"],
        "frame_stack": experiment.learner.frame_stack,
        "counters": checkpoint.meta.get("counters", {}),
        "checkpoint": checkpoint.path,
        "experiment": experiment.model_dump(mode="json"),
        "keras": keras.__version__,
    }
    texts = {
        "policy.json": json.dumps(about, indent=2) + "\n",
        "README.md": readme(inputs, outputs, imports, experiment, spec, changes),
    }
    for name, text in texts.items():
        try:
            atomic_write(directory / name, text)
        except OSError as error:
            raise cannot_write(directory / name, error) from error
    return path, imports


def functional_policy(agent: Agent, spec: EnvironmentSpec, frame_stack: int) -> keras.Model:
    """Build one acting step as a functional model: dict in, dict out.

    The model shares the agent's layers and renames some of them, so the agent cannot be used
    afterwards.

    In: `observation` [N, *stack of raw frames]; with an LSTM also `previous_action` [N] int32,
    `previous_reward` [N] float32 and `state` [N, S] float32. Out: `logits` [N, A] and `value` [N],
    or the action values `q` [N, A]; with an LSTM, `state` [N, S].

    Args:
        agent: the trained agent.
        spec: observations and actions of the environment.
        frame_stack: newest frames in an observation.
    """
    body: Any = agent.body
    policy: Any = getattr(agent.model, "policy", None)
    value: Any = getattr(agent.model, "value", None)
    dueling: Any = getattr(agent.model, "dueling", None)
    has_heads = dueling is not None or (policy is not None and value is not None)
    if not has_heads or not hasattr(body, "torso"):
        raise ConfigError(
            "an agent is exported if its model has a body with a torso, and the heads `policy` and "
            f"`value`, or `dueling`: {type(agent).__name__} lacks one of them"
        )
    frame = spec.observation
    observation = keras.Input(
        stacked_shape(frame.shape, frame_stack), dtype=frame.dtype, name="observation"
    )
    inputs: dict[str, Tensor] = {"observation": observation}
    _name_apart(body.torso)
    with _inlined(body.torso):
        x = body.torso(_normalized(body, _prepared(body, observation, spec, frame_stack)))
    outputs: dict[str, Tensor] = {}
    if body.lstm_units:
        row = spec.action.array
        inputs["previous_action"] = keras.Input(row.shape, dtype=row.dtype, name="previous_action")
        inputs["previous_reward"] = keras.Input((), dtype="float32", name="previous_reward")
        inputs["state"] = keras.Input((body.state_size,), dtype="float32", name="state")
        x, outputs["state"] = _lstm(body, x, inputs)
    if dueling is not None:
        outputs["q"] = dueling.call(x)  # its layers are Keras's own
    else:
        logits, valid = policy(x), body.valid_actions(observation)
        outputs["logits"] = logits if valid is None else ops.where(valid, logits, INVALID)
        outputs["value"] = ops.squeeze(value(x), -1)
    return keras.Model(inputs, outputs, name="policy")


def _prepared(body: Any, observation: Tensor, spec: EnvironmentSpec, frame_stack: int) -> Tensor:
    """Turn a stack of raw frames into the stack of prepared ones that the torso expects."""
    if getattr(body.torso, "prepare", None) is None or _plain_convolutions(body.torso):
        return observation
    frames = ops.split(observation, frame_stack, axis=-1) if frame_stack > 1 else [observation]
    prepared = []
    for frame in frames:
        # Frames [H, W] count as [H, W, 1] in a stack, and as [H, W] when they are prepared.
        row = body.prepare(ops.squeeze(frame, -1) if len(spec.observation.shape) == 2 else frame)
        prepared.append(ops.expand_dims(row, -1) if len(row.shape) == 3 else row)
    return ops.concatenate(prepared, axis=-1) if frame_stack > 1 else prepared[0]


def _normalized(body: Any, stacks: Tensor) -> Tensor:
    """Normalize stacks as training does, by the statistics of now."""
    if body.normalizer is None:
        return stacks
    plain = _plain_convolutions(body.torso)
    return body.normalizer.call(stacks, (lambda frames: frames) if plain else body.prepare)


def _lstm(body: Any, features: Tensor, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Apply our LSTM's weights in Keras's layer; return hidden [N, units], state [N, 2 units]."""
    action = encoded(inputs["previous_action"], body.action)
    reward = ops.expand_dims(inputs["previous_reward"], -1)
    row = ops.expand_dims(ops.concatenate([features, action, reward], axis=-1), 1)  # [N, 1, F]
    layer = keras.layers.LSTM(body.lstm_units, return_state=True, name="lstm")
    hidden, cell = ops.split(inputs["state"], 2, axis=-1)
    output, hidden, cell = layer(row, initial_state=[hidden, cell])
    core = body.core
    layer.set_weights(
        [ops.convert_to_numpy(w) for w in (core.kernel, core.recurrent_kernel, core.bias)]
    )
    return output, ops.concatenate([hidden, cell], axis=-1)


def _name_apart(torso: keras.layers.Layer) -> None:
    """Give each layer a name of its own, as a functional model demands.

    Below `section1` and `section2` there may be a `conv` each.
    """
    taken: set[str] = set()
    for layer in torso._flatten_layers():
        wanted = name = str(getattr(layer, "path", "") or layer.name).replace("/", "_")
        number = 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        layer.name = name
        taken.add(name)


def _plain_convolutions(torso: keras.layers.Layer) -> list[FirstConvolution]:
    """Return first convolutions, which work on blocks of pixels in training.

    Plain convolutions with the same weights, on frames as they are, are exported instead.
    """
    return [layer for layer in torso._flatten_layers() if isinstance(layer, FirstConvolution)]


def _convolve(first: FirstConvolution, image: Tensor) -> Tensor:
    layer = keras.layers.Conv2D(
        first.filters, first.size, first.stride, activation="relu", name=first.name
    )
    image = scaled(image)
    if first.standardize:
        mean, variance = ops.moments(image, (1, 2, 3), keepdims=True)
        image = (image - mean) / ops.maximum(ops.sqrt(variance), 1.0 / 255.0)
    output = layer(image)
    layer.set_weights([ops.convert_to_numpy(first.kernel), ops.convert_to_numpy(first.bias)])
    return output


@contextmanager
def _inlined(torso: keras.layers.Layer) -> Iterator[None]:
    """Call the insides of layers that are not Keras's and have no weights of their own.

    The functional model then consists of their parts instead of them.
    """

    def run_through(self: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    patches: list[tuple[Any, str, Callable[..., Any]]] = [
        (kind, "__call__", run_through)
        for kind in {
            type(layer)
            for layer in torso._flatten_layers()
            if not _is_keras(layer) and not layer._trainable_variables
        }
    ]
    if _plain_convolutions(torso):
        patches.append((FirstConvolution, "__call__", _convolve))
        patches.append((FirstConvolution, "prepare", lambda _, frame: frame))
    before = [kind.__dict__.get(name) for kind, name, _ in patches]
    try:
        for kind, name, function in patches:
            setattr(kind, name, function)
        yield
    finally:
        for (kind, name, _), method in zip(patches, before, strict=True):
            if method is None:
                delattr(kind, name)
            else:
                setattr(kind, name, method)


def _is_keras(layer: object) -> bool:
    return type(layer).__module__.partition(".")[0] == "keras"


def _row(tensor: Any) -> str:
    return f"{tensor.dtype}{list(tensor.shape[1:])}"
