"""The master invariant: with frozen parameters, what training computes is what acting computed.

Unrolls are collected over the real wire, from sessions of different sizes whose episodes end, are
cut and restart, with padding and with sessions that leave in mid-unroll and come back. The
training forward pass over them must give the behaviour policy's own numbers at every row, and
the rows must tell one consistent story.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.config import Experiment, parse_experiment
from seedbed.packed import ACTION_MASK, Entry, PackedSpec
from seedbed.runs.directory import open_run_directory
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.services.impala_actor.actor import ImpalaActor
from seedbed.services.impala_actor.loop import UnrollLoop
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.inference import thread as inference_thread
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import FIRST, ActionSpec, ArraySpec, VectorEnv
from tests.support.pattern_env import ACTIONS, NAME, PatternVectorEnv, digest, reward_of

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
# Devices by role, such as `1+3`; empty where one device does both (test_splits.py).
ACTING, _, TRAINING = os.environ.get("SEEDBED_TEST_DEVICES", "").partition("+")
BATCHES = 10
DEADLINE_S = 100

CASES = {
    "mlp": ("mlp", 0, 1, (6,), "float32"),
    "mlp-stack": ("mlp", 0, 3, (6,), "float32"),
    "mlp-lstm-stack": ("mlp", 16, 3, (6,), "float32"),
    "shallow-stack": ("impala_shallow", 0, 4, (36, 36), "uint8"),
    "shallow-odd-lstm-stack": ("impala_shallow", 16, 4, (38, 37, 3), "uint8"),
    "nature-lstm-stack": ("nature", 16, 2, (36, 40), "uint8"),
    "deep-lstm": ("impala_deep", 16, 1, (24, 24), "uint8"),
}
# These take JAX half a minute to compile, or are parts of other cases.
QUICK_ON_TENSORFLOW = ("deep-lstm", "mlp-stack")
SLOW_ON_JAX = pytest.mark.slow_on_jax
# Every kind of layer.
BFLOAT16_CASES = {name: CASES[name] for name in ("mlp-lstm-stack", "nature-lstm-stack")}
# Stacks and recurrent states that begin in the actor.
ACTORS_CASES = ("mlp-lstm-stack", "shallow-odd-lstm-stack")
# Observations of several arrays, with a mask; several actions; continuous ones.
DICT = PackedSpec.of(
    [
        Entry("pattern", ArraySpec((6,), "uint8")),
        Entry("picture", ArraySpec((24, 28, 3), "uint8")),
        Entry("map", ArraySpec((25, 24), "uint8")),
        Entry("vector", ArraySpec((3,), "float32")),
        Entry("key", ArraySpec((), "int32"), 7),
        Entry(ACTION_MASK, ArraySpec((ACTIONS,), "uint8")),
    ]
)
# Bits, as of Football; the pattern's four numbers are the first 32 of them.
BITS = PackedSpec.of([Entry("map", ArraySpec((18, 24, 4), "bool"))])
SPACES_CASES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "dict-mask-lstm-stack": ("impala_shallow", 16, 2, {"observation": DICT}),
    "bits-stack": ("football", 0, 4, {"observation": BITS}),
    "several-lstm-stack": ("mlp", 16, 2, {"space": ActionSpec("multi_discrete", (3, 4))}),
    "continuous-lstm-stack": ("mlp", 16, 2, {"space": ActionSpec("continuous", (2,))}),
}
# A synchronous agent's batch has every environment; one session comes and goes, and is masked.
A2C_CASES = {name: CASES[name] for name in ("mlp-lstm-stack", "shallow-stack")}
# Each of the parts that make an update each.
MINIBATCHES = 3


def experiment(
    network: str,
    lstm: int,
    stack: int,
    agent: str = "SureAgent",
    batch_size: int = 6,
    precision: str = "float32",
    location: str = "learner",
    minibatches: int = 1,
    normalization_frames: int = 0,
) -> Experiment:
    devices = "auto"
    if ACTING:
        devices = f"{{inference: {ACTING}, training: {TRAINING}}}"
        batch_size = math.lcm(batch_size, int(TRAINING))
    return parse_experiment(
        f"""
        name: invariant
        environment: {{id: "{NAME}"}}
        agent: tests.support.sure_agent:{agent}
        learner:
          backend: {BACKEND}
          precision: {precision}
          device: {"cpu" if ACTING else "auto"}
          devices: {devices}
          network: {network}
          lstm_units: {lstm}
          frame_stack: {stack}
          unroll_length: 7
          batch_size: {batch_size}
          minibatches: {minibatches}
          normalization_frames: {normalization_frames}
          queue_batches: 2
          straggler_timeout_s: 0.3
          inference: {{location: {location}, max_wait_ms: 2, slots: 64, max_batch_envs: 16}}
        actor: {{processes: 0, envs_per_group: 4}}
        logging: {{interval_s: 1000}}
        """
    )


def unroll_loop(config: Experiment, *arguments: Any) -> ActorLoop:
    """The loop of a group that chooses its actions, as `ImpalaActor` makes it."""
    loop = ActorLoop(*arguments)
    loop.group.unroll_length = config.learner.unroll_length
    loop.make_step_loop = partial(UnrollLoop, partial(ImpalaActor(config, "", 0).player, 0))
    return loop


async def play(
    config: Experiment,
    address: str,
    done: threading.Event,
    make: Callable[..., VectorEnv] = PatternVectorEnv,
    **spaces: Any,
) -> None:
    """Sessions of 4, 1, 3 and 5 environments; the last one keeps leaving in mid-unroll."""
    kind: Any = ActorLoop
    if config.learner.inference.location == "actor":
        kind = partial(unroll_loop, config)

    def runner(environments: int, number: int, visit: int = 0) -> ActorLoop:
        loop: ActorLoop = kind(
            lambda: make(environments, number, visit=visit, **spaces),
            address, f"test/{number}", 60.0, 60.0, ActorMetrics(),
        )  # fmt: skip
        return loop

    steady = [asyncio.create_task(runner(e, 10 * e).run()) for e in (4, 1, 3)]
    comes_and_goes, visit = 100, 0
    while not done.is_set():
        restless = asyncio.create_task(runner(5, comes_and_goes, visit).run())
        visit += 1
        comes_and_goes += 10 if comes_and_goes < 180 else -80
        await asyncio.wait([restless], timeout=0.7)
        restless.cancel()
        await asyncio.gather(restless, return_exceptions=True)
    for task in steady:
        task.cancel()
    await asyncio.gather(*steady, return_exceptions=True)


def collect(
    config: Experiment, path: Path, way: str = "shared memory", **spaces: Any
) -> tuple[LearnerComponents, list[TrainingBatch], Any]:
    """Batches of the real learner with frozen parameters, and its built parts."""
    done = threading.Event()
    batches: list[TrainingBatch] = []

    def observe(batch: TrainingBatch) -> None:
        if not done.is_set():
            batches.append(batch)
            if len(batches) == BATCHES:
                done.set()

    with ExitStack() as opened:
        run = opened.enter_context(open_run_directory(path / "run", config))
        listen = f"unix:{run.socket}" if way == "shared memory" else "127.0.0.1:0"
        learner = Learner(config, run, listen, frozen=True)
        learner.training.observers.append(observe)
        address = learner.start()
        actors = threading.Thread(target=lambda: asyncio.run(play(config, address, done, **spaces)))
        actors.start()
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not done.wait(0.1) and learner.threads.failure is None:
                assert time.monotonic() < deadline, learner.telemetry.waiting()
            if learner.threads.failure is not None:
                raise learner.threads.failure
            params, _ = learner.store.newest()
        finally:
            done.set()
            actors.join(DEADLINE_S)
            learner.stop("enough")
            learner.run()
        built = learner.components.result(0)
        assert built is not None
        return built, batches, params


def recomputation(
    built: LearnerComponents, params: Any, agent: Any = None
) -> Callable[[TrainingBatch], np.ndarray]:
    """The training forward pass, from a batch to its logits [R, B, P] or action values.

    It is that of the learner's own agent, or of `agent` with the same parameters.
    """
    from seedbed.agents.training_step import unroll_of

    agent = agent or built.agent
    if ACTING:
        params = built.trainer._params  # on the devices that train, and not on one that acts

    def forward(_: Any, params: Any, arrays: Any) -> Any:
        unroll = unroll_of(agent, built.unroll.frame_stack, arrays)
        outputs, _ = agent.model.stateless_call(params, [], *unroll.steps(), unroll.state)
        return outputs[0]

    # Compiled, as training is: a compiler may leave out a rounding between two operations.
    compiled = built.backend.tables({}).compile(forward)
    return lambda batch: np.asarray(compiled(params, built.backend.to_device(batch.arrays)))


def in_float32(config: Experiment, built: LearnerComponents) -> Any:
    """An agent that rounds nothing to bfloat16, with the same parameters.

    Where rounding moves training by at most r from it, it moves acting by at most 2 r, however a
    processor orders its sums, and so both by at most 3 r from each other.
    """
    from seedbed.factory import build_agent

    learner = config.learner.model_copy(update={"precision": "float32"})
    return build_agent(config.model_copy(update={"learner": learner}), built.spec)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def log_prob(logits: np.ndarray, arrays: dict[str, np.ndarray], space: ActionSpec) -> np.ndarray:
    """Log probabilities [T, B] of the actions, in NumPy."""
    action = arrays["action"]
    if space.kind == "continuous":
        mean, log_std = np.split(logits, 2, axis=-1)
        log_std = np.clip(log_std, -5, 0.5)
        standard = (arrays["behaviour/normal"] - mean) / np.exp(log_std)
        return (-0.5 * standard**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    parts = np.split(logits, np.cumsum(space.sizes)[:-1], axis=-1)
    chosen = action[..., None] if space.kind == "discrete" else action
    each = [
        np.take_along_axis(log_softmax(part), chosen[..., i, None], -1)[..., 0]
        for i, part in enumerate(parts)
    ]
    return np.sum(each, axis=0)


@pytest.mark.slow_after(4)
@pytest.mark.backends
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=SLOW_ON_JAX) if name in QUICK_ON_TENSORFLOW else name
        for name in CASES
    ],
)
def test_training_computes_what_acting_computed(case: str, tmp_path: Path) -> None:
    network, lstm, stack, shape, dtype = CASES[case]
    check(experiment(network, lstm, stack), shape, dtype, tmp_path)


@pytest.mark.slow_on_jax
@pytest.mark.backends
def test_so_do_two_batches_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.agents.inference_step.batches_in_flight", lambda _: 2)
    network, lstm, stack, shape, dtype = CASES["mlp-lstm-stack"]
    check(experiment(network, lstm, stack), shape, dtype, tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.backends
@pytest.mark.parametrize("most", [0, pytest.param(100, marks=SLOW_ON_JAX)])
def test_so_do_batches_computed_where_steps_arrive(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never, and whenever nothing is in flight; all other tests here do both."""
    shortest = dict.fromkeys(range(1, most + 1), math.inf)
    monkeypatch.setattr(inference_thread, "_SHORT_S", shortest)
    network, lstm, stack, shape, dtype = CASES["mlp-lstm-stack"]
    check(experiment(network, lstm, stack), shape, dtype, tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.backends
@pytest.mark.parametrize("case", A2C_CASES)
def test_so_do_rounds_of_all_environments(case: str, tmp_path: Path) -> None:
    network, lstm, stack, shape, dtype = A2C_CASES[case]
    check(experiment(network, lstm, stack, "SureA2c", 4 + 1 + 3 + 5), shape, dtype, tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.backends
def test_so_do_the_minibatches_of_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of each pass, as the trainer gets it: whole unrolls with their own states.

    Acting and training normalize alike.
    """
    network, lstm, stack, shape, dtype = CASES["mlp-lstm-stack"]
    config = experiment(
        network, lstm, stack, "SurePpo", minibatches=MINIBATCHES, normalization_frames=100
    )
    batches: list[TrainingBatch] = []
    collected = collect

    def parts(*arguments: Any, **spaces: Any) -> Any:
        built, whole, params = collected(*arguments, **spaces)
        for batch in whole:
            for of_pass in built.source.passes(batch):
                batches.extend(of_pass)
        assert len(batches) == MINIBATCHES * len(whole)
        return built, batches, params

    monkeypatch.setitem(globals(), "collect", parts)
    check(config, shape, dtype, tmp_path)
    assert {part.arrays["action"].shape[1] for part in batches} == {6 // MINIBATCHES}


@pytest.mark.slow
@pytest.mark.backends
@pytest.mark.parametrize("case", ACTORS_CASES)
def test_so_do_unrolls_whose_actions_the_actors_chose(case: str, tmp_path: Path) -> None:
    network, lstm, stack, shape, dtype = CASES[case]
    check(experiment(network, lstm, stack, location="actor"), shape, dtype, tmp_path)


@pytest.mark.slow_after(2)
@pytest.mark.backends
@pytest.mark.parametrize("location", ["learner", pytest.param("actor", marks=SLOW_ON_JAX)])
@pytest.mark.parametrize("case", SPACES_CASES)
def test_so_it_does_with_other_spaces(case: str, location: str, tmp_path: Path) -> None:
    network, lstm, stack, spaces = SPACES_CASES[case]
    spaces = {"shape": (6,), "dtype": "float32", **spaces}
    config = experiment(network, lstm, stack, location=location)
    check_spaces(config, tmp_path, **spaces)


def test_so_it_does_by_grpc(tmp_path: Path) -> None:
    """All other tests here go through shared memory."""
    network, lstm, stack, shape, dtype = CASES["shallow-odd-lstm-stack"]
    check_spaces(experiment(network, lstm, stack), tmp_path, way="gRPC", shape=shape, dtype=dtype)


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.backends
@SLOW_ON_JAX
@pytest.mark.parametrize("case", BFLOAT16_CASES)
def test_so_it_does_in_bfloat16(case: str, tmp_path: Path) -> None:
    """Acting and training differ by what rounding changes, and no more."""
    network, lstm, stack, shape, dtype = BFLOAT16_CASES[case]
    check(experiment(network, lstm, stack, precision="bfloat16"), shape, dtype, tmp_path)


def check(config: Experiment, shape: tuple[int, ...], dtype: str, path: Path) -> None:
    check_spaces(config, path, shape=shape, dtype=dtype)


def check_spaces(config: Experiment, path: Path, **spaces: Any) -> None:
    built, batches, params = collect(config, path, **spaces)
    space = spaces.get("space") or ActionSpec.discrete(ACTIONS)
    cut = 0
    log_rho = []
    float32 = config.learner.precision == "float32"
    recompute = recomputation(built, params)
    exact = None if float32 else recomputation(built, params, in_float32(config, built))
    rounding = []
    for batch in batches:
        context = config.learner.frame_stack - 1
        there = ~((batch.arrays["flags"] & FIRST) != 0)[context:].all(axis=0)  # [B], not padding
        assert there.any()
        behaviour = batch.arrays["behaviour/logits"]  # [T, B, P]
        recomputed = recompute(batch)[:-1]
        acted, trained = behaviour[:, there], recomputed[:, there]
        if space.kind == "discrete":
            acted, trained = log_softmax(acted), log_softmax(trained)
        if float32:
            # Every row, finished ones too: stricter than |log rho| at unmasked rows.
            np.testing.assert_allclose(trained, acted, atol=1e-4, rtol=0)
        log_trained = log_prob(recomputed, batch.arrays, space)
        difference = log_trained - log_prob(behaviour, batch.arrays, space)
        log_rho.append(difference[:, there].ravel())
        if exact is not None:
            off = log_trained - log_prob(exact(batch)[:-1], batch.arrays, space)
            rounding.append(np.abs(off[:, there]).max())
        assert acted.std() > 1e-3, "a policy that ignores its input proves nothing"
        cut += check_story(batch.arrays, there, context, space)
    assert cut > 0, "no episode ended: the patterns prove too little"
    most = largest_log_rho(built) if float32 else 0.1
    if rounding:
        assert 0 < max(rounding) < 0.05, "nothing was rounded, or too much to prove anything"
        most = min(most, 3 * max(rounding))
    check_log_rho(np.concatenate(log_rho), most)


def largest_log_rho(built: LearnerComponents) -> float:
    """The bound of |log rho| in float32, whose products an accelerator may round."""
    return 1e-3 if built.backend.devices()[0].startswith("cpu") else 0.1


def check_log_rho(log_rho: np.ndarray, most: float) -> None:
    """Importance weights of frozen parameters are 1 but for rounding, and not biased."""
    size = np.abs(log_rho)
    assert size.max() <= most
    assert np.median(size) <= 1e-2
    assert np.quantile(size, 0.99) <= 5e-2
    assert abs(log_rho.mean()) <= 1e-3


def check_story(
    arrays: dict[str, np.ndarray], there: np.ndarray, context: int, space: ActionSpec
) -> int:
    """Rows follow from each other: actions, rewards and counters are those of their own step."""
    seen = arrays["observation"].reshape(*arrays["observation"].shape[:2], -1)[context:, :, :5]
    first = (arrays["flags"][context:] & FIRST) != 0
    rows = len(first)
    cut = 0
    action, previous = (digest(arrays[name], space) for name in ("action", "previous_action"))
    for b in np.flatnonzero(there):
        for t in range(rows - 1):
            now, then = seen[t, b].astype(float), seen[t + 1, b].astype(float)
            assert then[0] == now[0], "a column is one environment"
            assert then[1] == (now[1] + 1) % 200, "no row is missing or double"
            if first[t + 1, b]:
                cut += 1
                assert arrays["reward"][t + 1, b] == 0
                continue
            assert then[3] == now[3], "one episode"
            assert then[2] == action[t, b], "the action of its own row"
            expected = reward_of(seen[t + 1, b])
            assert arrays["reward"][t + 1, b] == pytest.approx(expected, abs=1e-5)
        if not first[0, b]:
            assert seen[0, b, 2] == previous[b]
    return cut
