"""Torsos, the body and what does not fit."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.networks import AUTO, NETWORK_OPTIONS, NETWORKS
from seedbed.networks.body import Body, encoded, without_first
from seedbed.networks.entries import unpacked_bits
from seedbed.networks.image import FirstConvolution
from seedbed.networks.registry import load_class, make_body, prepared_frame
from seedbed.ops.frame_stack import stack_unroll
from seedbed.packed import ACTION_MASK, Entry, PackedSpec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ActionSpec, ArraySpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
ATARI = ArraySpec((84, 84), "uint8")
ACTIONS = 3


class WithDropout(keras.layers.Layer):
    """A torso with a random state."""

    def __init__(self) -> None:
        super().__init__(name="torso")
        self.dropout = keras.layers.Dropout(0.5)

    def call(self, x: Any) -> Any:
        return self.dropout(ops.cast(x, "float32"))


class WithNormalisation(keras.layers.Layer):
    """A torso whose variables change apart from gradients."""

    def __init__(self) -> None:
        super().__init__(name="torso")
        self.norm = keras.layers.BatchNormalization()

    def call(self, x: Any) -> Any:
        return self.norm(ops.cast(x, "float32"))


class Doubling(keras.layers.Layer):
    """A user's torso: no `prepare`, no `observe`, one option."""

    def __init__(self, units: int = 2) -> None:
        super().__init__(name="torso")
        self.dense = keras.layers.Dense(units)

    def call(self, x: Any) -> Any:
        return self.dense(ops.cast(x, "float32"))


def test_the_schema_has_the_options_of_each_network() -> None:
    signatures = {
        name: tuple(inspect.signature(load_class(path, "learner.network")).parameters)
        for name, path in NETWORKS.items()
    }
    assert {AUTO: (), **signatures} == NETWORK_OPTIONS


@pytest.mark.parametrize(
    ("frame", "network"),
    [
        (ATARI, "impala_shallow"),
        (ArraySpec((20, 20), "uint8"), "impala_shallow"),
        (ArraySpec((19, 40, 3), "uint8"), "mlp"),
        (ArraySpec((4,), "float32"), "mlp"),
        (ArraySpec((), "int32"), "mlp"),
        (PackedSpec.of([Entry("image", ArraySpec((7, 7, 3), "uint8"))]), "mlp"),
        (
            PackedSpec.of(
                [
                    Entry("image", ArraySpec((64, 64, 3), "uint8")),
                    Entry("speed", ArraySpec((3,), "float32")),
                ]
            ),
            "impala_shallow",
        ),
    ],
)
def test_what_is_seen_chooses_the_network(frame: ArraySpec, network: str) -> None:
    assert make_body("auto", {}, frame, 3, 1, 0).network == network


def test_channels_that_come_first_are_no_row_of_numbers() -> None:
    with pytest.raises(SeedbedError, match="channels first"):
        make_body("auto", {}, ArraySpec((3, 84, 84), "uint8"), 3, 1, 0)


def test_rows_in_parts_are_the_same_rows() -> None:
    body = body_of("impala_shallow", stack=4)
    rng = np.random.default_rng(3)
    stacks = ops.convert_to_tensor(rng.integers(0, 255, (16, 5, *body.stacked.shape), np.uint8))
    nothing = ops.zeros((16, 5)), ops.zeros((16, 5), "bool"), ops.zeros((5, 0))
    whole, _ = body(stacks, ops.zeros((16, 5), "int32"), *nothing)
    body.row_parts = 4
    parts, _ = body(stacks, ops.zeros((16, 5), "int32"), *nothing)
    np.testing.assert_allclose(np.asarray(parts), np.asarray(whole), atol=1e-5)


def body_of(
    network: str,
    frame: ArraySpec = ATARI,
    stack: int = 4,
    units: int = 0,
    options: dict[str, Any] | None = None,
) -> Body:
    np.random.seed(3)
    return make_body(network, options or {}, frame, ACTIONS, stack, units)


def random_arguments(body: Body, rows: int, columns: int, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    shape = (rows, columns)
    observation = rng.integers(0, 255, (*shape, *body.stacked.shape)).astype(body.stacked.dtype)
    first = rng.random(shape) < 0.25
    action = np.where(first, -1, rng.integers(0, ACTIONS, shape)).astype(np.int32)
    reward = np.where(first, 0, rng.normal(size=shape)).astype(np.float32)
    state = rng.normal(size=(columns, body.state_size)).astype(np.float32)
    return [observation, action, reward, first, state]


def call(body: Body, arguments: list[Array]) -> tuple[Array, Array]:
    features, state = body(*(ops.convert_to_tensor(x) for x in arguments))
    return ops.convert_to_numpy(features), ops.convert_to_numpy(state)


@pytest.mark.parametrize(
    ("network", "options", "features", "parameters"),
    [
        # Espeholt et al. 2018, figure 3, on 84 x 84 x 4, counted by hand.
        ("impala_shallow", {}, 256, 257 * 16 + 257 * 32 + 2593 * 256),
        ("impala_deep", {}, 256, None),
        ("impala_deep", {"width": 2}, 256, None),
        # Mnih et al. 2015.
        ("nature", {}, 512, 257 * 32 + 513 * 64 + 577 * 64 + 3137 * 512),
        # 32, 64 and 32 filters, and 512 units of Stooke and Abbeel 2018.
        ("nature_shallow", {}, 512, 257 * 32 + 513 * 64 + 577 * 32 + 1569 * 512),
    ],
)
def test_image_networks(
    network: str, options: dict[str, Any], features: int, parameters: int | None
) -> None:
    body = body_of(network, options=options)
    assert body.features == features
    out, _ = call(body, random_arguments(body, 2, 3))
    assert out.shape == (2, 3, features)
    assert np.isfinite(out).all()
    assert out.std() > 0
    if network == "impala_deep":
        width = options.get("width", 1)
        c1, c2 = 16 * width, 32 * width
        parameters = (9 * 4 + 1) * c1 + 4 * (9 * c1 + 1) * c1
        parameters += (9 * c1 + 1) * c2 + 4 * (9 * c2 + 1) * c2
        parameters += 5 * (9 * c2 + 1) * c2
        parameters += (11 * 11 * c2 + 1) * 256
    assert body.count_params() == parameters


PACKED = PackedSpec.of(
    [
        Entry("numbers", ArraySpec((2,), "float32")),
        Entry("picture", ArraySpec((24, 28, 3), "uint8")),
        Entry(ACTION_MASK, ArraySpec((ACTIONS,), "uint8")),
        Entry("keys", ArraySpec((2,), "int32"), 5),
        Entry("map", ArraySpec((25, 24), "uint8")),
    ]
)


@pytest.mark.parametrize("stack", [1, 3])
def test_entries_go_through_the_networks_of_their_kind(stack: int) -> None:
    """Each picture through an image network, the rest through an `Mlp`, a mask through none."""
    np.random.seed(4)
    body = make_body("impala_shallow", {}, PACKED, ACTIONS, stack, 0)
    rng = np.random.default_rng(5)
    n = 4
    seen = [  # [K, N, ...]
        rng.normal(size=(stack, n, 2)).astype(np.float32),
        rng.integers(0, 256, (stack, n, 24, 28, 3)).astype(np.uint8),
        rng.integers(0, 2, (stack, n, ACTIONS)).astype(np.uint8),
        rng.integers(0, 5, (stack, n, 2)).astype(np.int32),
        rng.integers(0, 256, (stack, n, 25, 24)).astype(np.uint8),
    ]
    names = [entry.name for entry in PACKED.entries]
    torso: Any = body.torso

    def features(arrays: list[Array]) -> Array:
        """The torso's, of packed rows."""
        rows = [[PACKED.pack({m: a[k, i] for m, a in zip(names, arrays, strict=True)})
                 for k in range(stack)] for i in range(n)]  # fmt: skip
        observation = np.array(rows).reshape(n, -1)
        return ops.convert_to_numpy(torso(ops.convert_to_tensor(observation)))

    numbers, picture, _, keys, grid = seen
    parts = []
    for image, frames in zip(torso.encoders, (picture, grid[..., None]), strict=True):
        prepared = [image.prepare(ops.convert_to_tensor(frame)) for frame in frames]
        parts.append(image(ops.concatenate(prepared, axis=-1)))
    flat = [x.swapaxes(0, 1).reshape(n, -1) for x in (numbers, np.eye(5)[keys])]
    parts.append(torso.mlp(ops.convert_to_tensor(np.concatenate(flat, -1).astype(np.float32))))
    got = features(seen)
    wanted = ops.convert_to_numpy(torso.join(ops.concatenate(parts, axis=-1)))
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    seen[2] = 1 - seen[2]
    np.testing.assert_array_equal(features(seen), got)


def test_an_mlp_takes_small_pictures_as_numbers() -> None:
    grid = PackedSpec.of(
        [
            Entry("direction", ArraySpec((), "int32"), 4),
            Entry("image", ArraySpec((7, 7, 3), "uint8")),
        ]
    )
    torso: Any = make_body("mlp", {"units": [8]}, grid, ACTIONS, 1, 0).torso
    image = np.random.default_rng(3).integers(0, 11, (7, 7, 3)).astype(np.uint8)
    row = grid.pack({"direction": np.int32(2), "image": image})
    found = torso(ops.convert_to_tensor(row[None]))
    flat = np.concatenate([[0, 0, 1, 0], image.ravel()]).astype(np.float32)
    wanted = torso.mlp(ops.convert_to_tensor(flat[None]))
    np.testing.assert_allclose(ops.convert_to_numpy(found), ops.convert_to_numpy(wanted), atol=1e-6)


def test_bits_are_those_of_numpy() -> None:
    """On the device, and of any axes before the bytes."""
    for shape in ((3, 5), (2, 3, 4)):
        data = np.random.default_rng(2).integers(0, 256, shape).astype(np.uint8)
        bits = ops.convert_to_numpy(unpacked_bits(ops.convert_to_tensor(data)))
        assert bits.dtype == np.uint8
        np.testing.assert_array_equal(bits, np.unpackbits(data, axis=-1))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("stack", [1, 4])
def test_bits_are_an_image_of_black_and_white(stack: int) -> None:
    """The network gives what it gives for bytes of 0 and 255; 18 x 17 x 4 leaves no byte half."""
    shape = (17, 18, 4)
    planes = np.random.default_rng(6).random((2, stack, *shape)) < 0.2
    found = []
    for dtype, values in (("bool", planes), ("uint8", planes * np.uint8(255))):
        np.random.seed(4)
        spec = PackedSpec.of([Entry("planes", ArraySpec(shape, dtype))])
        torso: Any = make_body("football", {}, spec, ACTIONS, stack, 0).torso
        rows = [[spec.pack({"planes": frame}) for frame in frames] for frames in values]
        found.append(ops.convert_to_numpy(torso(np.array(rows).reshape(2, -1))))
    np.testing.assert_array_equal(*found)
    assert found[0].std() > 0
    assert not np.array_equal(found[0][0], found[0][1])


def test_footballs_network_has_the_papers_sections() -> None:
    """Four of 16, 32, 32 and 32 filters halve 72 x 96 to 5 x 6; then a dense layer of 256."""
    spec = PackedSpec.of([Entry("observation", ArraySpec((72, 96, 4), "bool"))])
    assert spec.shape == (3456,), "an eighth of the 27,648 bytes of the map"
    body = body_of("football", frame=spec, stack=4)
    counts, inputs = 0, 16
    for filters in (16, 32, 32, 32):
        counts += (9 * inputs + 1) * filters + 4 * (9 * filters + 1) * filters
        inputs = filters
    assert body.count_params() == counts + (5 * 6 * 32 + 1) * 256
    assert body.features == 256


def test_what_an_actions_features_are() -> None:
    several, continuous = ActionSpec("multi_discrete", (3, 2)), ActionSpec("continuous", (2,))
    first = ops.convert_to_tensor(np.array([False, True]))
    action = ops.convert_to_tensor(np.array([[2, 1], [1, 0]], np.int32))
    found = encoded(without_first(action, first, several), several)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), [[0, 0, 1, 0, 1], [0, 0, 0, 0, 0]])
    numbers = ops.convert_to_tensor(np.array([[0.5, -1], [0.25, 1]], np.float32))
    found = encoded(without_first(numbers, first, continuous), continuous)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), [[0.5, -1], [0, 0]])


@pytest.mark.parametrize(
    ("frame", "blocks"),
    [
        (ArraySpec((84, 84), "uint8"), True),
        (ArraySpec((24, 36, 3), "uint8"), True),
        (ArraySpec((24, 36, 3), "float32"), True),
        (ArraySpec((30, 41), "uint8"), False),  # 4 divides neither side
    ],
)
@pytest.mark.parametrize("stack", [1, 4])
def test_first_convolution_is_a_plain_one(frame: ArraySpec, blocks: bool, stack: int) -> None:
    """The same weights in Keras's Conv2D, on plain stacks, give the same and so do gradients."""
    rows, columns = 2, 3
    rng = np.random.default_rng(0)
    scale = 255.0 if frame.dtype == "uint8" else 1.0
    frames = (rng.random((stack - 1 + rows, columns, *frame.shape)) * scale).astype(frame.dtype)
    first = ops.convert_to_tensor(rng.random(frames.shape[:2]) < 0.2)
    layer = FirstConvolution(6, 8, 4, "conv1")
    layer.observe(frame)
    assert bool(layer.frame_channels) is blocks

    prepared = layer.prepare(ops.convert_to_tensor(frames.reshape(-1, *frame.shape)))
    prepared = ops.reshape(prepared, (*frames.shape[:2], *prepared.shape[1:]))
    stacked = stack_unroll(prepared, first, stack)
    got = layer(ops.reshape(stacked, (-1, *stacked.shape[2:])))

    plain = stack_unroll(ops.convert_to_tensor(frames), first, stack)
    image = ops.cast(ops.reshape(plain, (-1, *plain.shape[2:])), "float32") / scale
    conv = keras.layers.Conv2D(6, 8, 4, activation="relu")
    conv.build(image.shape)
    conv.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        ops.convert_to_numpy(got), ops.convert_to_numpy(conv(image)), rtol=1e-4, atol=1e-5
    )


def test_body_gives_torso_features_row_by_row() -> None:
    body = body_of("mlp", ArraySpec((5,), "float32"), stack=2)
    assert body.stacked.shape == (10,)
    arguments = random_arguments(body, 3, 2)
    features, state = call(body, arguments)
    assert state.shape == (2, 0)
    for r in range(3):
        alone = ops.convert_to_numpy(body.torso(ops.convert_to_tensor(arguments[0][r])))
        np.testing.assert_allclose(features[r], alone, rtol=1e-5, atol=1e-6)


def lstm_body() -> Body:
    return body_of("mlp", ArraySpec((5,), "float32"), stack=1, units=7)


@pytest.mark.slow_on_jax
def test_lstm_equals_keras() -> None:
    body = lstm_body()
    observation, action, reward, first, state = random_arguments(body, 6, 4)
    first[:] = False
    action = np.abs(action)
    got, after = call(body, [observation, action, reward, first, state])
    torso = ops.convert_to_numpy(body.torso(ops.convert_to_tensor(observation.reshape(-1, 5))))
    inputs = np.concatenate(
        [torso.reshape(6, 4, -1), np.eye(ACTIONS)[action], reward[..., None]], axis=-1
    ).astype(np.float32)
    lstm = keras.layers.LSTM(7, return_sequences=True, return_state=True)
    lstm.build((4, 6, inputs.shape[-1]))
    lstm.set_weights(body.core.get_weights())
    sequence, hidden, cell = lstm(
        ops.convert_to_tensor(inputs.transpose(1, 0, 2)),
        initial_state=[ops.convert_to_tensor(state[:, :7]), ops.convert_to_tensor(state[:, 7:])],
    )
    np.testing.assert_allclose(
        got, ops.convert_to_numpy(sequence).transpose(1, 0, 2), rtol=1e-4, atol=1e-5
    )
    wanted = np.concatenate([ops.convert_to_numpy(hidden), ops.convert_to_numpy(cell)], axis=-1)
    np.testing.assert_allclose(after, wanted, rtol=1e-4, atol=1e-5)


def test_lstm_rows_one_by_one_equal_the_unroll() -> None:
    """Acting (one row, no scan) and training (a scan) are the same, resets included."""
    body = lstm_body()
    arguments = random_arguments(body, 8, 5, seed=1)
    assert arguments[3].any()
    features, after = call(body, arguments)
    state = arguments[4]
    for r in range(8):
        row, state = call(body, [*(x[r : r + 1] for x in arguments[:4]), state])
        np.testing.assert_allclose(row[0], features[r], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state, after, rtol=1e-5, atol=1e-5)


def test_lstm_is_reset_before_a_first_row() -> None:
    body = lstm_body()
    arguments = random_arguments(body, 6, 4, seed=2)
    arguments[3][:] = False
    arguments[3][3, 1] = True
    features, _ = call(body, arguments)
    fresh = [*(x[3:] for x in arguments[:4]), np.zeros_like(arguments[4])]
    from_zero, _ = call(body, fresh)
    np.testing.assert_allclose(features[3:, 1], from_zero[:, 1], rtol=1e-5, atol=1e-6)
    assert np.abs(features[3:, 0] - from_zero[:, 0]).max() > 1e-3


def test_no_previous_action_is_no_action() -> None:
    """-1 feeds zeros: not the last action, as an index would."""
    body = lstm_body()
    arguments = random_arguments(body, 1, 1)
    outputs = []
    for action in (-1, 0, 1, 2):
        arguments[1] = np.full((1, 1), action, np.int32)
        outputs.append(call(body, arguments)[0])
    kernel = body.core.kernel.numpy().copy()
    kernel[-1 - ACTIONS : -1] = 0.0  # the rows of the one-hot
    body.core.kernel.assign(kernel)
    np.testing.assert_allclose(call(body, arguments)[0], outputs[0], rtol=1e-6)
    for output in outputs[1:]:
        assert np.abs(output - outputs[0]).max() > 1e-4


def test_a_batch_equals_its_columns() -> None:
    for network, units in (("impala_shallow", 0), ("impala_shallow", 4)):
        body = body_of(network, units=units)
        arguments = random_arguments(body, 3, 4)
        together, _ = call(body, arguments)
        for b in range(4):
            alone, _ = call(
                body, [*(x[:, b : b + 1] for x in arguments[:4]), arguments[4][b : b + 1]]
            )
            np.testing.assert_allclose(alone[:, 0], together[:, b], rtol=1e-4, atol=1e-5)


def test_prepared_frame() -> None:
    assert prepared_frame(body_of("nature"), ATARI) == ArraySpec((21, 21, 16), "uint8")
    assert prepared_frame(body_of("impala_deep"), ATARI) == ATARI


def test_a_users_torso() -> None:
    body = body_of(f"{__name__}:Doubling", ArraySpec((5,), "int32"), options={"units": 11})
    assert body.features == 11


@pytest.mark.parametrize(
    ("network", "frame", "options", "says"),
    [
        ("impala", ATARI, {}, r"'impala' is unknown.*impala_deep.*module:Class"),
        ("nature", ArraySpec((4,), "float32"), {}, r"wants images.*float32\[4\].*mlp"),
        ("nature", ArraySpec((20, 84), "uint8"), {}, r"at least 36 x 36.*uint8\[20, 84\]"),
        ("impala_deep", ATARI, {"widht": 2}, r"\['widht'\] unknown.*\['width'\]"),
        ("impala_deep", ATARI, {"width": 3}, r"width is 1, 2 or 4, given 3"),
        ("nature", ATARI, {"width": 2}, r"takes \['standardize'\]"),
        ("mlp", ArraySpec((4,), "float32"), {"activation": "rellu"}, r"rellu"),
        ("mlp", ArraySpec((4,), "float32"), {"units": []}, r"units is empty"),
        ("no_such_module:Net", ATARI, {}, r"learner.network.*no_such_module"),
        (f"{__name__}:Missing", ATARI, {}, r"Missing"),
        (f"{__name__}:WithDropout", ArraySpec((4,), "float32"), {}, r"training does not change"),
        (f"{__name__}:WithNormalisation", ArraySpec((4,), "float32"), {}, r"moving_mean"),
        (f"{__name__}:ATARI", ATARI, {}, r"ATARI"),
    ],
)
def test_refusals(network: str, frame: ArraySpec, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SeedbedError, match=says) as error:
        body_of(network, frame, options=options)
    assert error.value.code is ExitCode.CONFIG


@pytest.mark.parametrize(
    ("network", "smallest"), [("impala_shallow", 20), ("nature", 36), ("nature_shallow", 36)]
)
def test_the_smallest_image_works(network: str, smallest: int) -> None:
    body = body_of(network, ArraySpec((smallest, smallest), "uint8"))
    assert call(body, random_arguments(body, 1, 1))[0].shape == (1, 1, body.features)


@pytest.mark.parametrize("network", ["impala_shallow", "nature"])
def test_standardized_images(network: str) -> None:
    """As plain Keras layers on images standardized by NumPy; a blank image is no division by 0."""
    rng = np.random.default_rng(0)
    body = make_body(network, {"standardize": True}, ATARI, ACTIONS, 4, 0)
    frames = rng.integers(0, 256, (3, 84, 84, 4)).astype(np.uint8)
    frames[1] = frames[1] // 50 + 87  # hardly any contrast
    frames[2] = 200
    images = frames / 255.0
    mean = images.mean((1, 2, 3), keepdims=True)
    deviation = np.maximum(images.std((1, 2, 3), keepdims=True), 1 / 255)
    first = body.torso.first
    conv = keras.layers.Conv2D(first.filters, 8, 4, activation="relu")
    conv.build((None, 84, 84, 4))
    conv.set_weights([first.kernel, first.bias])
    wanted = conv(((images - mean) / deviation).astype(np.float32))
    # Blocks of one frame after the other, as a stack has them.
    prepared = [first.prepare(ops.convert_to_tensor(frames[..., k : k + 1])) for k in range(4)]
    given = first(ops.concatenate(prepared, -1))
    np.testing.assert_allclose(
        ops.convert_to_numpy(given), ops.convert_to_numpy(wanted), rtol=1e-3, atol=2e-3
    )


def test_a_normalizer_magnifies_no_background() -> None:
    """A shift of 23 grey levels, as between two ways to resize, stays below one deviation."""
    frame = ArraySpec((84, 84), "uint8")
    body = make_body("impala_shallow", {}, frame, ACTIONS, 4, 0, normalize=True)
    assert body.normalizer is not None
    mean, still, count = np.full(frame.shape, 0.4), np.zeros(frame.shape), np.ones(frame.shape)
    body.normalizer.statistics.assign(np.stack([mean, still, count]))
    shifted = np.full((1, *body.stacked.shape), round(0.4 * 255) + 23, np.uint8)
    seen = np.asarray(body.normalizer.call(ops.convert_to_tensor(shifted), body.prepare))
    assert 0.8 < seen.min() <= seen.max() < 1.0
    ball = np.asarray(body.normalizer.call(ops.full((1, *body.stacked.shape), 236.0), body.prepare))
    np.testing.assert_array_equal(ball, 5.0)
