"""Learner and replay shards are killed with -9, one by one and together, while a run goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from seedbed.replay.mapped_files import open_buffer
from seedbed.replay.sequence import Sample, SequenceSpec
from seedbed.runtime.exit_codes import ExitCode
from seedbed.spec import ArraySpec
from tests.support.processes import START_S, Process, cluster, free_port
from tests.support.shard_process import ShardProcess, shards
from tests.support.waiting import wait_for

ENVIRONMENT = "tests.support.faulty_environments:Counted"
SPEC = SequenceSpec(
    ArraySpec((3,), "float32"),
    steps=8,
    burn_in=4,
    state_size=16,
    environment=ENVIRONMENT,
    actions=2,
)
CAPACITY = 600
FIRST = 8


@pytest.mark.slow
def test_shards_and_learner_are_killed(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with shards(tmp_path, 2, capacity=CAPACITY, alpha=0.9) as both:
        names = "[" + ", ".join(shard.address for shard in both) + "]"
        with cluster(
            tmp_path,
            "agent=r2d2",
            f"environment.id={ENVIRONMENT}",
            "actor.envs_per_group=4",
            "learner.lstm_units=8",
            "r2d2.burn_in=4",
            "learner.replay.storage=remote",
            f"learner.replay.shards={names}",
            "learner.replay.min_size=40",
            "learner.replay.ratio=0.5",
        ) as it:

            def learner() -> Process:
                return it.start("learner", "--listen", address, "--run-dir", str(tmp_path / "run"))

            first = learner()
            actors = [it.start("actor", "--learner", address, "--index", str(i)) for i in (1, 2)]
            it.trains(first)

            # One shard: the run goes on without it, and takes it up again with what it held.
            both[0].kill()
            it.trains(first)
            wait_for(lambda: it.status()["numbers"]["replay_healthy_shards"] == 1, "it is left out")
            held = stored(both[0].start().listening())
            assert held > 10
            wait_for(lambda: it.status()["numbers"]["replay_healthy_shards"] == 2, "it is back")
            it.trains(first)

            # The learner: the next one finds the replay filled.
            first.send(signal.SIGKILL)
            first.wait()
            second = learner()
            after = it.trains(second, updates=1)
            assert after["numbers"]["replay_sequences"] > 40
            assert "filled again" not in second.said

            # All of them at once.
            for shard in both:
                assert shard.process is not None
                shard.process.send(signal.SIGKILL)
            second.send(signal.SIGKILL)
            second.wait()
            for shard in both:
                shard.kill()
                assert stored(shard.start().listening()) > 10
            third = learner()
            it.trains(third, updates=20)
            third.send(signal.SIGTERM)
            assert third.wait(START_S) == 0, third.said
            for actor in actors:
                actor.runs()
        for shard in both:
            assert shard.stop() == 0
            seen = check_files(shard.directory)
            assert seen > 100, "too little was kept to prove much"


@pytest.mark.slow
def test_without_a_shard_the_actors_wait(tmp_path: Path) -> None:
    """Nothing is taken in that would be stored nowhere, and a signal is heard all the same."""
    with cluster(
        tmp_path,
        "agent=r2d2",
        "learner.lstm_units=8",
        "r2d2.burn_in=4",
        "learner.replay.storage=remote",
        f"learner.replay.shards=[127.0.0.1:{free_port()}]",
        "learner.replay.min_size=40",
    ) as it:
        learner = it.train()
        words = "no replay shard answers: 127.0.0.1:"
        wait_for(lambda: words in str(it.status().get("waiting_for")), "it says so", START_S)
        wait_for(lambda: it.counters()["env_frames"] > 0, "actors are there", START_S)
        seen: list[int] = []

        def stands() -> bool:
            seen.append(it.counters()["env_frames"])
            return len(seen) > 10 and seen[-1] == seen[-10]

        wait_for(stands, "the actors stand still", START_S, every_s=0.2)
        assert seen[-1] < 1000
        assert it.counters()["inserted_frames"] == 0
        learner.send(signal.SIGTERM)
        assert learner.wait(30) == ExitCode.TERMINATED, learner.said
        assert "the run ended before its first update" in learner.said


def stored(shard: ShardProcess) -> int:
    return int(shard.state().size)


def check_files(directory: Path) -> int:
    """Every sequence that can be drawn is one that an environment made. Returns how many."""
    buffer = open_buffer(directory, SPEC, CAPACITY, 0.0)
    try:
        assert buffer.corrupt == 0
        sample = buffer.sample(np.random.default_rng(1).random(4 * CAPACITY))
        for b in range(len(sample.keys)):
            check_sequence(sample, b)
        return len(np.unique(sample.keys))
    finally:
        buffer.close()


def check_sequence(sample: Sample, b: int) -> None:
    arrays = {name: array[:, b] for name, array in sample.arrays.items() if array.ndim > 1
              and name != "state"}  # fmt: skip
    source, made, led = arrays["observation"].T
    assert (source == source[0]).all()
    np.testing.assert_array_equal(np.diff(made), 1)
    first = (arrays["flags"] & FIRST) != 0
    np.testing.assert_array_equal(led[1:][~first[1:]], arrays["action"][~first[1:]])
    assert (led[first] == -1).all()
    np.testing.assert_allclose(arrays["reward"][~first], made[~first] / 1000, rtol=1e-5)
