"""Devices by role: a divided update is the undivided one, and each device has its own part of it.

A process has one number of CPU devices, so each case is a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.config import parse_experiment
from seedbed.runtime.exit_codes import ConfigError

BATCH = 12

PROGRAM = """
import json, sys
import numpy as np
from seedbed import backends
from seedbed.backends.roles import Split
inference, training, updates, path = *map(int, sys.argv[1:4]), sys.argv[4]
split = Split(inference, training) if inference else None
backend = backends.use("jax", device="cpu", split=split)
import jax
from seedbed.config.load import parse_experiment
from seedbed.services.learner.components_factory import build_components
from seedbed.spec import ArraySpec, EnvironmentSpec
devices = f"{{inference: {inference}, training: {training}}}" if inference else "auto"
experiment = parse_experiment(
    "{name: a, environment: {id: x}, agent: vtrace, learner: {backend: jax, network: nature, "
    f"lstm_units: 8, frame_stack: 2, unroll_length: 5, batch_size: BATCH, devices: {devices}}}}}"
)
spec = EnvironmentSpec("x", ArraySpec((36, 40), "uint8"), 5, 1)
built = build_components(experiment, spec, backend)
rng = np.random.default_rng(0)
steps, size = 5, BATCH
arrays = {
    "observation": rng.integers(0, 255, (steps + 2, size, 36, 40)).astype(np.uint8),
    "flags": (rng.random((steps + 2, size)) < 0.2).astype(np.uint8),
    "reward": rng.normal(size=(steps + 1, size)).astype(np.float32),
    "action": rng.integers(0, 5, (steps, size)).astype(np.int32),
    "previous_action": rng.integers(0, 5, size).astype(np.int32),
    "state": rng.normal(size=(size, 16)).astype(np.float32),
    "behaviour/logits": rng.normal(size=(steps, size, 5)).astype(np.float32),
}
trainer = built.trainer
batch = backend.to_device(arrays)
compiled = trainer._step.lower(trainer._slots, trainer._params, trainer._target, batch).compile()
for _ in range(updates):
    outputs = trainer.step(backend.to_device(arrays))
copies = backend.to_acting(trainer.params())
resident = [array.is_ready() for copy in copies for array in copy]
np.savez(path, **trainer.state(), loss=np.asarray(outputs["loss"]))
cost = compiled.cost_analysis()
acting = [step._act for step in built.inference]
print(json.dumps({
    "hlo": compiled.as_text(),
    "flops": cost["flops"],
    "compiles": trainer._step._cache_size(),
    "training": sorted(str(d) for d in trainer._params[0].devices()),
    "acting": [str(*copy[0].devices()) for copy in copies],
    "resident": all(resident),
    "equal": [all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(copy, trainer.params()))
              for copy in copies],
    "part": sorted({s.data.shape[1] for s in batch["observation"].addressable_shards}),
}))
"""


def run(inference: int, training: int, path: Path) -> dict[str, Any]:
    """Three updates with a split; 0 inference devices is one device without a split."""
    program = PROGRAM.replace("BATCH", str(BATCH))
    done = subprocess.run(
        [sys.executable, "-c", program, str(inference), str(training), "3", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["state"] = dict(np.load(path))
    return result


@pytest.fixture(scope="module")
def undivided(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(0, 1, tmp_path_factory.mktemp("undivided") / "state.npz")


@pytest.mark.slow
@pytest.mark.parametrize(("inference", "training"), [(1, 3), (2, 1)])
def test_a_divided_update_is_the_undivided_one(
    undivided: dict[str, Any], tmp_path: Path, inference: int, training: int
) -> None:
    divided = run(inference, training, tmp_path / "state.npz")
    assert divided["state"].keys() == undivided["state"].keys()
    for name, array in undivided["state"].items():
        np.testing.assert_allclose(divided["state"][name], array, rtol=1e-5, atol=1e-5)
    # The first devices act, the next ones train, and the parameters are on each that acts.
    names = [f"cpu:{i}" for i in range(inference + training)]
    assert divided["acting"] == names[:inference]
    assert divided["training"] == names[inference:]
    assert all(divided["equal"])
    # Parameters on their way would keep the inference batches of their device waiting.
    assert divided["resident"]
    assert divided["compiles"] == 1
    assert divided["part"] == [BATCH // training]
    # Equal results are no proof that a device computes its part only.
    work = divided["flops"] / undivided["flops"]
    assert work == pytest.approx(1 / training, rel=0.15)
    hlo = divided["hlo"]
    gathered = re.findall(r"= (\S+) all-gather", hlo)
    assert not [shape for shape in gathered if elements(shape) > 6 * BATCH * 5], gathered
    assert ("all-reduce" in hlo) == (training > 1)


def elements(shape: str) -> int:
    """Numbers in an HLO shape such as `f32[6,12,5]{2,1,0}`."""
    sizes = re.findall(r"\[([\d,]*)\]", shape)[0]
    return int(np.prod([int(n) for n in sizes.split(",") if n] or [1]))


LEARNER = "{name: a, environment: {id: CartPole-v1}, agent: vtrace, learner: {%s}}"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("devices: {inference: 1, training: 1}", "backend tensorflow, which uses one device"),
        ("backend: jax, devices: {inference: 2}", "at least one device must train"),
        ("backend: jax, devices: {training: 2}", "at least one must act"),
        (
            "backend: jax, batch_size: 32, devices: {inference: 1, training: 3}",
            "batch_size 32 cannot be divided among 3 devices that train: 30 or 33 can",
        ),
        (
            "backend: jax, hosts: 2, batch_size: 10, devices: {inference: 1, training: 2}",
            "batch_size 10 cannot be divided among 4 devices that train: 8 or 12 can",
        ),
        (
            "backend: jax, batch_size: 4, replay: {storage: device}, "
            "devices: {inference: 1, training: 2}",
            "the memory of one device",
        ),
        ("backend: jax, devices: some", "devices"),
    ],
)
def test_roles_that_cannot_be_are_refused(settings: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_experiment(LEARNER % settings)


def test_auto_is_a_word() -> None:
    experiment = parse_experiment(LEARNER % "devices: auto")
    assert experiment.learner.devices.is_auto
