"""A torso for packed observations: an encoder for each picture, and one for the rest."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from seedbed.networks.image import dense
from seedbed.networks.mlp import Mlp
from seedbed.packed import ACTION_MASK, Entry, PackedSpec
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import ArraySpec
from seedbed.types import Tensor

# As many as the image networks have.
JOINED_UNITS = 256


class EntriesTorso(keras.layers.Layer):
    """Encoders of the entries of a packed observation, whose features go through one more layer.

    Each picture has an image network of its own. Vectors, numbers and one-hot categories go
    through one `Mlp`, and pictures too where `learner.network` is `mlp`, which suits small grids.
    Where frames are stacked, pictures and numbers before an episode are zeros, and categories
    are 0. The entry `action_mask` is no feature.

    Args:
        packed: the observation.
        frame_stack: K.
        make_image: makes the torso of a picture; None where `learner.network` is `mlp`.
        make_mlp: makes the torso of the rest.

    Raises:
        SeedbedError: CONFIG: there is nothing but a mask.
    """

    def __init__(
        self,
        packed: PackedSpec,
        frame_stack: int,
        make_image: Callable[[], Any] | None,
        make_mlp: Callable[[], Mlp],
    ) -> None:
        super().__init__(name="torso")
        self.packed, self.frame_stack = packed, frame_stack
        self.images: dict[str, Any] = {}
        self.vectors: list[str] = []
        for entry in packed.entries:
            if entry.name == ACTION_MASK:
                continue
            if not entry.is_image or make_image is None:
                self.vectors.append(entry.name)
                continue
            image = make_image()
            image.name = f"image{len(self.images)}"
            if hasattr(image, "observe"):
                image.observe(entry.array, frame_stack)
            self.images[entry.name] = image
        if not (self.images or self.vectors):
            raise ConfigError(f"the observation {packed} holds nothing but a mask")
        self.encoders = list(self.images.values())  # Keras tracks layers of lists
        self.mlp = make_mlp() if self.vectors else None
        if self.mlp is not None:
            self.mlp.name = "vector"
        # What encoders say together is no sum of what each says alone, and heads are linear.
        several = len(self.images) + bool(self.vectors) > 1
        self.join = dense(JOINED_UNITS, "join") if several else None

    def call(self, observation: Tensor) -> Tensor:
        """Return features [N, F].

        Args:
            observation: [N, K * bytes] uint8, the newest row last.
        """
        rows = ops.reshape(observation, (-1, self.frame_stack, self.packed.shape[0]))
        features, flat = [], []
        for entry, place in self.packed.places():
            if entry.name == ACTION_MASK:
                continue
            array = unpacked(rows[..., place], entry)  # [N, K, *shape]
            if entry.name in self.images:
                features.append(self._image(self.images[entry.name], array, entry.is_bits))
            elif entry.categories:
                one_hot = ops.one_hot(array, entry.categories, dtype="float32")
                flat.append(_joined(one_hot))
            else:
                flat.append(_joined(ops.cast(array, "float32")))
        if self.mlp is not None:
            features.append(self.mlp(ops.concatenate(flat, axis=-1)))
        joined = ops.concatenate([ops.cast(f, "float32") for f in features], axis=-1)
        return joined if self.join is None else self.join(joined)

    def _image(self, image: Any, array: Tensor, bits: bool) -> Tensor:
        """Return the features of stacked pictures [N, K, height, width(, channels)]."""
        if bits:
            array = array * 255  # white, as in an image
        frames = [array[:, k] for k in range(self.frame_stack)]
        if hasattr(image, "prepare"):
            frames = [image.prepare(frame) for frame in frames]
        frames = [f if len(f.shape) == _IMAGE_AXES else ops.expand_dims(f, -1) for f in frames]
        return image(ops.concatenate(frames, axis=-1))


_IMAGE_AXES = 4  # with N


def unpacked(data: Tensor, entry: Entry) -> Tensor:
    """Return an entry [..., *shape] in its dtype; bits as uint8, 0 or 1.

    Args:
        data: [..., bytes] uint8.
        entry: the entry.
    """
    lead = data.shape[1:-1]
    array = data
    if entry.is_bits:
        array = unpacked_bits(data)[..., : entry.array.row_bytes]
    elif entry.array.dtype != "uint8":
        array = ops.view(data, dtype=entry.array.dtype)
    return ops.reshape(array, (-1, *lead, *entry.array.shape))


def unpacked_bits(data: Tensor) -> Tensor:
    """Return the bits of bytes as [..., 8 * bytes] uint8, the highest bit of each byte first.

    Args:
        data: [..., bytes] uint8.
    """
    shifts = ops.cast(ops.arange(7, -1, -1), "uint8")
    bits = ops.right_shift(ops.expand_dims(data, -1), shifts)  # [..., bytes, 8]
    bits = ops.bitwise_and(bits, ops.ones_like(shifts))
    return ops.reshape(bits, (-1, *data.shape[1:-1], 8 * data.shape[-1]))


def valid_actions(observation: Tensor, frame: ArraySpec) -> Tensor | None:
    """Return the mask of valid actions [N, A] bool of the newest rows; None without one.

    Where no action is valid, as it may be at an episode's end, all are.

    Args:
        observation: [N, K * bytes] uint8, the newest row last.
        frame: a single observation.
    """
    if not isinstance(frame, PackedSpec):
        return None
    for entry, place in frame.places():
        if entry.name == ACTION_MASK:
            newest = observation[..., observation.shape[-1] - frame.shape[0] :]
            mask = newest[..., place] != 0
            return ops.logical_or(mask, ops.logical_not(ops.any(mask, axis=-1, keepdims=True)))
    return None


def _joined(array: Tensor) -> Tensor:
    """Return [N, K, ...] as [N, F]."""
    size = 1
    for n in array.shape[1:]:
        size *= n
    return ops.reshape(array, (-1, size))
