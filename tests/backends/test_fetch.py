"""Outputs of an update come to the host together; compiled functions outlive the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.backends.protocol import Backend
from seedbed.config import parse_experiment
from seedbed.runtime.files import delete_oldest
from seedbed.services.learner.components import ParameterStore
from seedbed.services.learner.training.thread import TrainingThread
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.telemetry import Counters, Telemetry

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


@pytest.mark.backends
def test_outputs_come_in_one_vector(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an accelerator does, on a CPU: numbers and priorities in one array, others apart."""
    trainer: Any = object.__new__(backend.trainer)
    given = {
        "loss": np.float32(0.25),
        "priority": np.arange(5, dtype=np.float32),
        "gradient_norm": np.float32(np.nan),
        "count": np.int32(2**30 + 1),
    }
    outputs = backend.to_device(given)
    trainer._uncounted = (["params"], outputs["gradient_norm"])
    vectors = []
    pack = trainer._pack
    monkeypatch.setattr(trainer, "_pack", lambda arrays: vectors.append(pack(arrays)) or vectors[0])
    monkeypatch.setattr(trainer, "_may_pack", lambda array: "float32" in str(array.dtype))
    fetched = trainer.fetch(outputs)
    assert [vector.shape for vector in vectors] == [(7,)]
    assert fetched.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(fetched[name], array)
    # The target network counts by the number that was fetched, and transfers none of its own.
    assert isinstance(trainer._uncounted[1], np.ndarray)


def test_nothing_but_fetch_reads_an_update(tmp_path: Path) -> None:
    """One transfer an update: no number is read where it lies on the device."""
    on_device = {name: object() for name in ("loss", "gradient_norm", "priority")}
    numbers = {"loss": np.float32(1), "gradient_norm": np.float32(2), "priority": np.ones(3)}
    fetches: list[Any] = []
    seen: list[Any] = []

    def fetch(outputs: Any) -> Any:
        assert outputs == on_device
        fetches.append(outputs)
        return numbers

    components: Any = SimpleNamespace(
        source=SimpleNamespace(
            passes=lambda batch: iter([iter([batch])]),
            train_step=lambda batch, exchange: on_device,
            on_trained=lambda batch, given: seen.append(given),
        ),
        trainer=SimpleNamespace(fetch=fetch, params=list),
        agent=SimpleNamespace(synchronous=False, trains_from_replay=True),
        spec=SimpleNamespace(action_repeat=1),
    )
    telemetry = Telemetry(
        parse_experiment("name: toy\nenvironment: {id: Toy-v0}"), None, Counters()
    )
    quarantine: Any = None
    thread = TrainingThread(ParameterStore(), telemetry, lambda: None, quarantine)
    for _ in range(3):
        thread.train(components, TrainingBatch({}, np.zeros(3), 3))
    assert len(fetches) == 3
    assert seen == [numbers] * 3
    assert telemetry.training.scalars == {"loss": 1.0, "gradient_norm": 2.0}


PROGRAM = """
import sys
from pathlib import Path
from seedbed import backends
backend = backends.use("jax", device="cpu")
backend.keep_compiled(Path(sys.argv[1]))
import jax
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
jax.jit(lambda x: x * 2 + 1)(3.0)
print(sum(name.endswith("/cache_hits") for name in found))
"""


@pytest.mark.backends
@pytest.mark.skipif(BACKEND != "jax", reason="TensorFlow keeps no compiled functions")
def test_a_restart_finds_what_was_compiled(tmp_path: Path) -> None:
    hits = [
        int(subprocess.check_output([sys.executable, "-c", PROGRAM, str(tmp_path / "made")]))
        for _ in range(2)
    ]
    assert hits[0] == 0
    assert hits[1] > 0


def test_the_oldest_files_go_first(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}-cache").write_bytes(bytes(100))
        os.utime(tmp_path / f"{number}-cache", (number, number))
    delete_oldest(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2-cache", "3-cache"]
    delete_oldest(tmp_path / "none", 0)
