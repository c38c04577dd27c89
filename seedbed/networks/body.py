"""The network below an agent's heads: a torso, then optionally an LSTM."""

import keras
import numpy as np
from keras import ops

from seedbed.networks.entries import valid_actions
from seedbed.networks.initializers import GlorotUniform, Orthogonal
from seedbed.networks.statistics import ObservationNormalizer
from seedbed.packed import PackedSpec
from seedbed.spec import ActionSpec, ArraySpec
from seedbed.types import Tensor

# Rows of a part below which its operations are too short to gain by it.
_LEAST_PART_ROWS = 16


class Body(keras.layers.Layer):
    """A torso and, where `lstm_units` is not 0, an LSTM core.

    As in IMPALA and R2D2, the LSTM takes the torso's features, the one-hot previous action (zeros
    on first steps) and the previous reward.

    Args:
        torso: layer from [N, *stacked shape] of the raw dtype to [N, features].
        stacked: spec of one stack of prepared frames.
        actions: the action space, or A of a discrete one.
        lstm_units: 0 for a feed-forward body.
        initial_weights: as of `learner.initial_weights`.
        frame: a single frame, where it may be packed.
        normalizer: normalizes stacks before the torso; None leaves them as they are.

    Attributes:
        network: name of the torso's network, once `make_body` has given it.
        action: the action space.
        state_size: S, 2 * lstm_units: the hidden state h, then the cell c.
        features: F, size of the output.
        policy: name of the Keras dtype policy in which torso and core compute.
        batch_major: whether the rows of one column follow each other where time and batch become
            one axis. Otherwise a batch that is divided among devices would be gathered on each.
        row_parts: parts in which the torso computes the rows of a training batch, side by side.
    """

    def __init__(
        self,
        torso: keras.layers.Layer,
        stacked: ArraySpec,
        actions: int | ActionSpec,
        lstm_units: int = 0,
        initial_weights: str = "default",
        frame: ArraySpec | None = None,
        normalizer: ObservationNormalizer | None = None,
    ) -> None:
        # The policy in force is that of the parts; what enters and leaves a body is float32.
        super().__init__(name="body", dtype="float32")
        self.policy = keras.config.dtype_policy().name
        self.torso = torso
        self.stacked = stacked
        self.action = ActionSpec.discrete(actions) if isinstance(actions, int) else actions
        self.lstm_units = lstm_units
        self.initial_weights = initial_weights
        self.state_size = 2 * lstm_units
        self.frame = frame
        self.batch_major = False
        self.row_parts = 1
        self.normalizer = normalizer
        self.network = ""
        dtype = stacked.dtype if normalizer is None else "float32"
        torso_features = int(torso(keras.KerasTensor((1, *stacked.shape), dtype)).shape[-1])
        self.features = lstm_units or torso_features
        self.core = None
        if lstm_units:
            recurrent = GlorotUniform() if initial_weights == "glorot" else Orthogonal()
            self.core = LstmCore(lstm_units, recurrent)
            self.core.build((None, None, torso_features + self.action.width + 1))
        self.built = True

    def prepare(self, frame: Tensor) -> Tensor:
        """Change the layout of single frames, once a frame, if the torso does.

        Args:
            frame: [N, *shape].
        """
        prepare = getattr(self.torso, "prepare", None)
        return frame if prepare is None else prepare(frame)

    def flatten(self, x: Tensor) -> Tensor:
        """Return all rows of x [R, B, ...] as [R * B, ...], in the order of `batch_major`."""
        if self.batch_major and x.shape[0] > 1:
            x = ops.swapaxes(x, 0, 1)
        return ops.reshape(x, (-1, *x.shape[2:]))

    def unflatten(self, x: Tensor, steps: int) -> Tensor:
        """Undo `flatten`.

        Args:
            x: [R * B, ...].
            steps: R.
        """
        if self.batch_major and steps > 1:
            return ops.swapaxes(ops.reshape(x, (-1, steps, *x.shape[1:])), 0, 1)
        return ops.reshape(x, (steps, -1, *x.shape[1:]))

    @property
    def has_mask(self) -> bool:
        """Whether observations hold a mask of valid actions."""
        return isinstance(self.frame, PackedSpec) and self.frame.has_mask

    def valid_actions(self, observation: Tensor) -> Tensor | None:
        """Return the mask of valid actions [..., A] bool; None in an environment without masks.

        Args:
            observation: [..., *stacked shape].
        """
        return None if self.frame is None else valid_actions(observation, self.frame)

    def symbols(self) -> tuple[Tensor, ...]:
        """Return the arguments of a call without values, with which an agent builds its model.

        A call with values would compile each operation by itself.
        """
        return (
            keras.KerasTensor((1, 1, *self.stacked.shape), self.stacked.dtype),
            keras.KerasTensor((1, 1, *self.action.array.shape), self.action.array.dtype),
            keras.KerasTensor((1, 1), "float32"),
            keras.KerasTensor((1, 1), "bool"),
            keras.KerasTensor((1, self.state_size), "float32"),
        )

    def call(
        self,
        observation: Tensor,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return features [R, B, F] and the state [B, S] after the last step.

        Args:
            observation: [R, B, *stacked shape].
            previous_action: [R, B, *action], without one on first steps (`ActionSpec.none`).
            previous_reward: [R, B] float32, 0 on first steps.
            first: [R, B] bool, steps before which the state is zeroed.
            state: [B, S] float32.
        """
        steps = observation.shape[0]
        stacks = self.flatten(observation)
        rows, parts = stacks.shape[0] or 0, self.row_parts
        if rows % parts or rows < parts * _LEAST_PART_ROWS:
            parts = 1
        of_parts = [
            self._torso_of(x) for x in (ops.split(stacks, parts) if parts > 1 else [stacks])
        ]
        features = of_parts[0] if parts == 1 else ops.concatenate(of_parts, axis=0)
        features = self.unflatten(features, steps)  # [R, B, F]
        features = ops.cast(features, "float32")
        if self.core is None:
            return features, state
        inputs = ops.concatenate(
            [
                features,
                encoded(previous_action, self.action),
                ops.expand_dims(previous_reward, -1),
            ],
            axis=-1,
        )
        hidden, state = self.core(inputs, first, state)
        return hidden, state

    def _torso_of(self, stacks: Tensor) -> Tensor:
        """Return features [N, F] of prepared stacks [N, *stacked shape]."""
        if self.normalizer is not None:
            stacks = self.normalizer.call(stacks, self.prepare)
        return self.torso(stacks)


def without_first(action: Tensor, first: Tensor, space: ActionSpec) -> Tensor:
    """Return previous actions, without one on an episode's first step (`ActionSpec.none`).

    Args:
        action: [..., *action].
        first: [...] bool.
        space: the action space.
    """
    for _ in space.array.shape:
        first = ops.expand_dims(first, -1)
    return ops.where(first, 0.0 if space.kind == "continuous" else -1, action)


def encoded(action: Tensor, space: ActionSpec) -> Tensor:
    """Return actions as features [..., width]: one-hot vectors, zeros where it is -1; or numbers.

    Args:
        action: [..., *action].
        space: the action space.
    """
    if space.kind == "continuous":
        return action
    if space.kind == "discrete":
        return ops.one_hot(action, space.width, dtype="float32")
    parts = [ops.one_hot(action[..., i], n, dtype="float32") for i, n in enumerate(space.sizes)]
    return ops.concatenate(parts, axis=-1)


class LstmCore(keras.layers.Layer):
    """An LSTM (Hochreiter & Schmidhuber 1997) that is reset where an episode starts.

    The weights have the shapes, names and gate order (i, f, c, o) of `keras.layers.LSTM`, so that
    they load into one. Its products are in the precision of the policy in force when it is made,
    gates and state in float32.

    Args:
        units: size of the hidden state, and of the cell.
        recurrent: initial values of the recurrent kernel.
    """

    def __init__(self, units: int, recurrent: keras.initializers.Initializer) -> None:
        super().__init__(name="lstm", dtype="float32")
        self.products = keras.config.dtype_policy().compute_dtype
        self.units = units
        self._recurrent = recurrent

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the weights; the forget gate's bias starts at 1.

        Args:
            input_shape: [R, B, F].
        """
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], 4 * self.units), initializer=GlorotUniform()
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=(self.units, 4 * self.units),
            initializer=self._recurrent,
        )
        self.bias = self.add_weight(name="bias", shape=(4 * self.units,), initializer="zeros")
        bias = np.zeros(4 * self.units, np.float32)
        bias[self.units : 2 * self.units] = 1.0
        self.bias.assign(bias)
        self.built = True

    def call(self, inputs: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden states [R, B, units] and the state [B, 2 * units] after the last step.

        Args:
            inputs: [R, B, F] float32.
            first: [R, B] bool, steps before which the state is zeroed.
            state: [B, 2 * units] float32: the hidden state, then the cell.
        """
        # One product for all steps; only the recurrent one is sequential.
        projected = self._product(inputs, self.kernel) + self.bias  # [R, B, 4 * units]
        first = first[:, :, None]  # [R, B, 1]
        kernel = ops.cast(self.recurrent_kernel, self.products)

        def step(state: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            projected, first = inputs
            # Not a product: 0 times a state that is no number is none either, and would stay.
            hidden, cell = ops.split(ops.where(first, 0.0, state), 2, axis=-1)
            i, f, c, o = ops.split(projected + self._product(hidden, kernel), 4, axis=-1)
            cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.tanh(c)
            hidden = ops.sigmoid(o) * ops.tanh(cell)
            state = ops.concatenate([hidden, cell], axis=-1)
            return state, state

        steps = inputs.shape[0]
        if steps == 1:  # acting
            state, _ = step(state, (projected[0], first[0]))
            return ops.expand_dims(state[:, : self.units], 0), state
        # On TensorFlow, `keras.ops.scan` wants outputs that look like the carry.
        state, states = ops.scan(step, state, (projected, first), length=steps)
        return states[:, :, : self.units], state

    def _product(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Return x times kernel as float32."""
        x, kernel = (ops.cast(a, self.products) for a in (x, kernel))
        return ops.cast(ops.matmul(x, kernel), "float32")
