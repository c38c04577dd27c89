"""An exported policy gives the trained agent's own numbers, in a process that has none of us."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from seedbed.agents.actor_critic import INVALID
from seedbed.agents.protocol import ActInputs
from seedbed.backends.protocol import Backend
from seedbed.backends.state import named_variables
from seedbed.cli.export import run
from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.export.policy import load_agent
from seedbed.factory import build_agent
from seedbed.networks import NETWORKS
from seedbed.ops.frame_stack import stacked_shape
from seedbed.optimizers import build_optimizer
from seedbed.packed import ACTION_MASK, Entry, PackedSpec
from seedbed.runs.directory import open_run_directory
from seedbed.runs.stored import read_checkpoint
from seedbed.runs.trust import stored_experiment
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.spec import ActionSpec, ArraySpec, EnvironmentSpec

pytestmark = pytest.mark.backends

ACTIONS = 6
VECTORS = [
    Entry("numbers", ArraySpec((3,), "float32")),
    Entry(ACTION_MASK, ArraySpec((ACTIONS,), "uint8")),
    Entry("key", ArraySpec((), "int32"), 7),
]
FRAMES: dict[str, ArraySpec] = {
    "image": ArraySpec((84, 84, 1), "uint8"),
    "gray": ArraySpec((42, 42), "uint8"),
    "black and white": ArraySpec((84, 84, 1), "int8"),  # which no network scales
    "blocks": ArraySpec((84, 88, 3), "uint8"),
    "colour": ArraySpec((42, 40, 3), "uint8"),
    "vector": ArraySpec((5,), "float32"),
    "packed": PackedSpec.of(
        [
            Entry("picture", ArraySpec((36, 40, 3), "uint8")),
            Entry("map", ArraySpec((25, 24), "uint8")),
            *VECTORS,
        ]
    ),
    "packed vectors": PackedSpec.of(VECTORS),
    "bits": PackedSpec.of([Entry("map", ArraySpec((18, 21, 4), "bool"))]),
}
FRAMES |= dict.fromkeys(("several", "continuous"), FRAMES["vector"])
SPACES = {
    "several": ActionSpec("multi_discrete", (2, 4)),
    "continuous": ActionSpec("continuous", (ACTIONS,)),
}
CASES = [
    ("mlp", "vector", 8, 2),
    ("impala_shallow", "image", 0, 4),
    ("impala_shallow", "gray", 16, 3),
    ("impala_deep", "colour", 16, 2),
    ("impala_shallow", "blocks", 0, 2),
    ("nature", "black and white", 0, 4),
    ("nature_shallow", "image", 0, 4),
    (f"{__name__}:Scaled", "vector", 0, 2),
    ("impala_shallow", "packed", 16, 2),
    ("mlp", "packed vectors", 8, 2),
    ("football", "bits", 0, 4),
    ("mlp", "several", 8, 1),
    ("mlp", "continuous", 8, 1),
]
# Action values instead of a policy: network, frame, lstm, stack, and the agent's settings.
Q_CASES = [
    ("nature", "image", 16, 4, ["agent=r2d2", "r2d2.dueling_units=32"]),
    ("mlp", "vector", 8, 2, ["agent=r2d2"]),
    ("mlp", "vector", 0, 1, ["agent=dqn", "learner.unroll_length=1"]),
]
if os.environ["KERAS_BACKEND"] == "jax":
    # Op by op, JAX compiles each one, which takes minutes for the deep networks. What is exported
    # does not depend on the backend, so the smallest case with an LSTM is enough there.
    CASES = [case for case in CASES if case[0] == "mlp"]
    Q_CASES = [case for case in Q_CASES if case[0] == "mlp"]
NORMALIZED = ["learner.normalization_frames=100", "learner.initial_weights=orthogonal"]
STANDARDIZED = ["learner.network_options={standardize: true}"]
ALL = [*((*case, []) for case in CASES), *Q_CASES]
if os.environ["KERAS_BACKEND"] == "tensorflow":
    ALL.append(("impala_shallow", "blocks", 0, 2, STANDARDIZED))
    ALL.append(("impala_shallow", "blocks", 0, 2, NORMALIZED))
    ALL.append(("mlp", "vector", 8, 2, NORMALIZED))
STEPS, ROWS = 3, 2

READER = """
import sys
import numpy as np
sys.modules["services"] = None  # any import of ours fails
import keras
for directory in sys.argv[1:]:
    policy = keras.saving.load_model(f"{directory}/out/policy.keras")
    given = dict(np.load(f"{directory}/given.npz"))
    wanted = [tensor.name for tensor in policy.inputs]
    state = given["state"]
    got = {}
    for t in range(given["observation"].shape[0]):
        inputs = {name: given[name][t] for name in wanted if name != "state"}
        if "state" in wanted:
            inputs["state"] = state
        outputs = {name: np.asarray(value) for name, value in policy(inputs).items()}
        state = outputs.get("state")
        for name, value in outputs.items():
            got[f"{name}{t}"] = value
    np.savez(f"{directory}/got.npz", **got)
"""


def make_run(
    path: Path, network: str, kind: str, lstm: int, stack: int, settings: list[str]
) -> None:
    """A run with one checkpoint, of weights that are anything but what a new network has."""
    experiment = parse_experiment(
        "name: x\nenvironment: {id: CartPole-v1}\nagent: vtrace",
        [
            f"learner.backend={os.environ['KERAS_BACKEND']}",
            f"learner.network={network}",
            f"learner.lstm_units={lstm}",
            f"learner.frame_stack={stack}",
            *settings,
        ],
    )
    spec = EnvironmentSpec("CartPole-v1", FRAMES[kind], ACTIONS, 4, SPACES.get(kind))
    model = build_agent(experiment, spec).model
    names, _ = named_variables(model, build_optimizer(experiment, 1))
    generator = np.random.default_rng(0)
    arrays = {
        name: (ops.convert_to_numpy(v) + 0.02 * generator.standard_normal(v.shape)).astype(
            np.float32
        )
        for name, v in zip(names, model.trainable_variables, strict=True)
    }
    meta = {
        "experiment": dump_experiment(experiment),
        "spec": spec.to_json(),
        "counters": {"updates": 9},
    }
    with open_run_directory(path, experiment) as directory:
        directory.store.save(arrays, meta, 9)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Path:
    """Every case exported, and what plain Keras computes from the exports, by one process."""
    root = tmp_path_factory.mktemp("exported")
    made = []
    if backend.name == "tensorflow":
        assert {case[0] for case in CASES} >= NETWORKS.keys(), "a network without a case"
    for i, (network, kind, lstm, stack, settings) in enumerate(ALL):
        case = root / str(i)
        make_run(case / "run", network, kind, lstm, stack, settings)
        run(namespace(run_dir=str(case / "run"), directory=str(case / "out"), checkpoint="newest"))
        np.savez(case / "given.npz", **given_rows(kind, lstm, stack))
        made.append(str(case))
    done = subprocess.run(
        [sys.executable, "-c", READER, *made],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": backend.name, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return root


def given_rows(kind: str, lstm: int, stack: int) -> dict[str, np.ndarray]:
    """Raw frames [steps, N, K, *shape] and what the exported policy takes instead."""
    generator = np.random.default_rng(1)
    frame = FRAMES[kind]
    shape = (STEPS, ROWS, stack, *frame.shape)
    if frame.dtype == "uint8":
        frames = generator.integers(0, 256, shape).astype(frame.dtype)
    elif frame.dtype == "int8":
        frames = generator.integers(0, 2, shape).astype(frame.dtype)
    else:
        frames = generator.normal(size=shape).astype(frame.dtype)
    if isinstance(frame, PackedSpec):
        for entry, place in frame.places():
            if entry.is_bits:
                continue  # any byte is eight bits
            high = 2 if entry.name == ACTION_MASK else entry.categories or 256
            size = (*shape[:-1], prod(entry.array.shape))
            numbers = generator.integers(0, high, size).astype(entry.array.dtype)
            frames[..., place] = numbers.view(np.uint8)
    space = SPACES.get(kind, ActionSpec.discrete(ACTIONS))
    previous = [space.random(generator, ROWS) for _ in range(STEPS)]
    previous[0] = space.none(ROWS)
    # Oldest first, joined along the last axis; [H, W] counts as [H, W, 1].
    columns = frames[..., None] if len(frame.shape) == 2 else frames
    return {
        "frames": frames,
        "observation": np.concatenate([columns[:, :, k] for k in range(stack)], axis=-1),
        "previous_action": np.stack(previous),
        "previous_reward": generator.normal(size=(STEPS, ROWS)).astype(np.float32),
        "state": generator.normal(size=(ROWS, 2 * lstm)).astype(np.float32),
    }


@pytest.mark.slow
@pytest.mark.parametrize("i", range(len(ALL)), ids=lambda i: f"{ALL[i]}")
def test_plain_keras_gives_the_agents_own_numbers(exported: Path, i: int) -> None:
    case = exported / str(i)
    _, kind, lstm, stack, settings = ALL[i]
    q_learned = any(setting.startswith("agent=") for setting in settings)
    given = given_rows(kind, lstm, stack)
    assert given["observation"].shape[2:] == stacked_shape(FRAMES[kind].shape, stack)
    got = np.load(case / "got.npz")
    checkpoint = read_checkpoint(case / "run")
    agent = load_agent(checkpoint, stored_experiment(checkpoint, trust=True))
    state = ops.convert_to_tensor(given["state"])
    params = [v.value for v in agent.model.trainable_variables]
    for t in range(STEPS):
        # As inference does: each frame is prepared by itself, then stacked.
        prepared = [
            ops.convert_to_numpy(
                agent.body.prepare(ops.convert_to_tensor(given["frames"][t, :, k]))
            )
            for k in range(stack)
        ]
        columns = [row[..., None] if row.ndim == 3 else row for row in prepared]
        inputs = ActInputs(
            observation=ops.convert_to_tensor(np.concatenate(columns, axis=-1)),
            previous_action=ops.convert_to_tensor(given["previous_action"][t]),
            previous_reward=ops.convert_to_tensor(given["previous_reward"][t]),
            first=ops.zeros((ROWS,), "bool"),
            slot=ops.zeros((ROWS,), "int32"),
            noise=ops.ones((ROWS, agent.noise_columns), "float32"),  # explores nowhere
        )
        outputs = agent.act(params, inputs, state, greedy=False)
        state = outputs.state
        if q_learned:
            q = got[f"q{t}"]
            assert q.std(-1).min() > 1e-3, "the numbers say nothing"
            np.testing.assert_allclose(q.max(-1), outputs.behaviour["best"], atol=1e-5)
            np.testing.assert_array_equal(q.argmax(-1), ops.convert_to_numpy(outputs.action))
            assert f"logits{t}" not in got
        else:
            logits = ops.convert_to_numpy(outputs.behaviour["logits"])
            assert np.ptp(logits, axis=-1).min() > 1e-3, "the numbers say nothing"
            if agent.body.has_mask:
                valid = FRAMES[kind].unpack(given["frames"][t, :, -1])[ACTION_MASK]
                assert (logits[valid == 0] == INVALID).all()
            np.testing.assert_allclose(got[f"logits{t}"], logits, atol=1e-5)
            assert got[f"value{t}"].shape == (ROWS,)
        if lstm:
            np.testing.assert_allclose(got[f"state{t}"], ops.convert_to_numpy(state), atol=1e-5)
    about = json.loads((case / "out" / "policy.json").read_text())
    assert about["imports"] == []
    assert about["counters"] == {"updates": 9}
    space = SPACES.get(kind, ActionSpec.discrete(ACTIONS))
    the_readme_works(case / "out", (1, *space.array.shape))


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path, backend: Backend) -> None:
    make_run(tmp_path / "run", "mlp", "vector", 0, 1, [])
    with pytest.raises(SeedbedError, match="there are: 9"):
        run(namespace(run_dir=str(tmp_path / "run"), directory="x", checkpoint="8"))


def the_readme_works(directory: Path, shape: tuple[int, ...]) -> None:
    """Its example runs as it stands (its import of Keras is the one of this process)."""
    code = (directory / "README.md").read_text().split("```")[1].removeprefix("python\n")
    scope: dict[str, object] = {}
    here = Path.cwd()
    os.chdir(directory)
    try:
        exec(code, scope)
    finally:
        os.chdir(here)
    assert np.shape(scope["action"]) == shape


def namespace(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(trust=True, **values)


class Halved(keras.layers.Layer):
    """A layer of one's own without weights."""

    def call(self, x: object) -> object:
        return ops.tanh(x) * 0.5


class Scaled(keras.layers.Layer):
    """A network of one's own, made of Keras's layers and another one."""

    def __init__(self) -> None:
        super().__init__(name="torso")
        self.halved = Halved()
        self.dense = keras.layers.Dense(7, name="dense")

    def call(self, x: object) -> object:
        return self.dense(self.halved(x))
