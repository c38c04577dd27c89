"""Pictures reach image networks as their space says: 0 to 1, from whatever range and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, MultiBinary
from numpy.typing import NDArray

from seedbed.envs.failures import EnvironmentFault
from seedbed.envs.spaces import ObservationReader
from seedbed.packed import PackedSpec
from seedbed.spec import ArraySpec

BOOL: Any = np.bool_
SIDE = 36  # the least that `nature` takes
BITS: NDArray[np.bool_] = np.random.default_rng(0).random((SIDE, SIDE, 1)) < 0.3
# One picture, black and white, as spaces of other ranges and dtypes have it.
SAME: dict[str, tuple[Any, Any]] = {
    "bytes": (Box(0, 255, BITS.shape, np.uint8), BITS * np.uint8(255)),
    "bits": (Box(0, 1, BITS.shape, np.bool_), BITS),
    "bits in bytes": (Box(0, 1, BITS.shape, np.uint8), BITS.astype(np.uint8)),
    "bits in int8": (Box(0, 1, BITS.shape, np.int8), BITS.astype(np.int8)),
    "five levels": (Box(0, 5, BITS.shape, np.uint8), BITS * np.uint8(5)),
    "ten levels": (Box(0, 10, BITS.shape, np.uint8), BITS * np.uint8(10)),
    "uint16": (Box(0, 65535, BITS.shape, np.uint16), BITS * np.uint16(65535)),
    "int32 to 255": (Box(0, 255, BITS.shape, np.int32), BITS * np.int32(255)),
    "floats": (Box(0, 1, BITS.shape, np.float32), BITS.astype(np.float32)),
    "float64": (Box(0, 1, BITS.shape, np.float64), BITS.astype(np.float64)),
    "floats to 255": (Box(0, 255, BITS.shape, np.float32), BITS * np.float32(255)),
    "with a sign": (Box(-100, 100, BITS.shape, np.float32), BITS * np.float32(100)),
    "multi binary": (MultiBinary(BITS.shape), BITS.astype(np.int8)),
    "bits in a dictionary": (Dict({"p": Box(0, 1, BITS.shape, np.bool_)}), {"p": BITS}),
    "bytes in a dictionary": (
        Dict({"p": Box(0, 255, BITS.shape, np.uint8)}),
        {"p": BITS * np.uint8(255)},
    ),
}  # fmt: skip


@pytest.mark.backends
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("network", ["nature", "impala_shallow"])
def test_the_same_picture_gives_the_same_features(network: str) -> None:
    """Two frames stacked, and the weights of the first one."""
    from keras import ops

    from seedbed.networks.registry import make_body
    from seedbed.ops.frame_stack import stack_step

    reference, weights = None, None
    for name, (space, picture) in SAME.items():
        reader = ObservationReader(space)
        body = make_body(network, {}, reader.spec, 2, 2, 0)
        row = ops.convert_to_tensor(reader.read(picture, {})[None])
        frame = body.prepare(row)
        none = ops.zeros((1, 1, *frame.shape[1:]), frame.dtype)
        stack, _ = stack_step(none, ops.convert_to_tensor([True]), frame)
        torso: Any = body.torso
        if isinstance(reader.spec, PackedSpec):
            (torso.encoders[0],) = torso.images.values()
            body.torso(stack)
            torso.encoders[0].set_weights(weights)
            features = body.torso(stack)
        else:
            weights = weights or [np.asarray(w) for w in torso.get_weights()]
            torso.set_weights(weights)
            features = torso(stack)
        got = ops.convert_to_numpy(ops.cast(features, "float32"))
        reference = got if reference is None else reference
        np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-5, err_msg=name)
    assert reference is not None
    assert np.abs(reference).mean() > 1e-3, "a picture 255 times too dark gives next to nothing"


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (Box(0, 255, (9, 9, 3), np.uint8), "uint8"),
        (Box(0, 255, (9, 9, 12), np.float32), "float32"),
        (Box(-1, 1, (9, 9, 3), np.float32), "float32"),
        (Box(0, 1, (9, 9), BOOL), "int8"),
        (Box(0, 7, (3, 3), np.uint8), "float32"),
        (Box(0, 1000, (9, 9, 1), np.uint16), "float32"),
        (Box(-5, 20, (9, 9, 1), np.int16), "float32"),
    ],
)
def test_every_number_is_that_of_a_slow_reference(space: Box, dtype: str) -> None:
    reader = ObservationReader(space)
    assert reader.spec == ArraySpec(space.shape, dtype)
    space.seed(1)
    picture = space.sample()
    read = reader.read(picture, {})
    assert read.dtype == np.dtype(dtype)
    most = max(abs(float(space.low.min())), abs(float(space.high.max())))
    for place in np.ndindex(space.shape):
        seen = float(read[place]) / (255 if dtype == "uint8" else 1)
        assert seen == pytest.approx(float(picture[place]) / most, rel=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 300, (5,), np.float32),  # a vector
        Box(0, 255, (4, 6), np.float32),  # a matrix
        Box(-np.inf, np.inf, (9, 9, 3), np.float32),
        Box(0, 2**40, (9, 9, 3), np.float64),
        Box(0, 255, (12,), np.uint8),
    ],
)
def test_what_is_no_picture_or_has_no_bounds_is_sent_as_it_is(space: Box) -> None:
    space.seed(1)
    values = space.sample()
    np.testing.assert_array_equal(
        ObservationReader(space).read(values, {}), values.astype(np.float32)
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("value", [2, 255])
def test_a_bit_that_is_none_is_refused(dtype: Any, value: int) -> None:
    reader = ObservationReader(Box(0, 1, (9, 9), dtype))
    with pytest.raises(EnvironmentFault, match=f"holds {value}"):
        reader.read(np.full((9, 9), value, dtype), {})


def test_what_the_network_sees_is_told() -> None:
    def notes(space: Any) -> tuple[list[str], list[str]]:
        return ObservationReader(space).notes

    seen, warnings = notes(Box(0, 1, (84, 80, 1), np.bool_))
    size = "84 high, 80 wide, 1 channel"
    assert (seen, warnings) == ([f"the picture: {size}; 0 to 1 of its space as 0 to 1"], [])
    seen, _ = notes(Box(0, 255, (84, 80, 3), np.uint8))
    assert seen == ["the picture: 84 high, 80 wide, 3 channels; 0 to 255 of its space as 0 to 1"]
    seen, _ = notes(Box(-50, 200, (84, 80), np.float32))
    assert seen == [f"the picture: {size}; -50 to 200 of its space as -0.25 to 1"]
    _, (warning,) = notes(Box(0, 255, (4, 84, 84), np.uint8))
    assert "channels first?" in warning
    _, (warning,) = notes(Dict({"x": Box(0, 1, (40, 40, 3)), "y": Box(0, 1, (2,))}))
    assert "the picture x is of float32, which no image network takes" in warning
    assert notes(Box(0, 1, (84,))) == ([], [])
