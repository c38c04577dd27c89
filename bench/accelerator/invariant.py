"""Child: the master invariant on this device. Training must compute what acting computed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.model_parts import used_backend
from bench.null_learner import pong_spec
from seedbed.config import load_experiment
from seedbed.services.learner.unrolls.batches import BatchBuilder
from seedbed.services.learner.unrolls.unroll import UnrollSpec, UnrollWriter
from seedbed.spec import FIRST, StepInputs

# Standard deviation of the logits. An untrained policy is nearly uniform, and would prove little.
SURE = 2.0
# What |log rho| may be, by precision: its median, 99th percentile and largest, and |mean|.
_SHORT = {"median": 1e-2, "p99": 5e-2, "largest": 0.1, "mean": 1e-3}
LIMITS = {
    "float32": {"median": 1e-4, "p99": 1e-4, "largest": 1e-4, "mean": 1e-4},
    "bfloat16": _SHORT,
    "tensorfloat32": _SHORT,
}


class Invariant:
    """Acting in batches of mixed sizes, and the training forward pass over the same unrolls."""

    def __init__(self, experiment: str) -> None:
        self._config = load_experiment(experiment)
        backend = used_backend(self._config)  # before Keras is imported
        from seedbed.services.learner.components_factory import build_components

        self._spec = pong_spec(self._config)
        self._built = build_components(self._config, self._spec, backend)
        self._random = np.random.default_rng(0)
        self._make_sure()

    def _make_sure(self) -> None:
        """Scale the policy's layer until the logits differ as a trained policy's do."""
        trainer, environments = self._built.trainer, self._config.learner.batch_size
        shape = (environments, *self._spec.observation.shape)
        for flag in (FIRST, *[0] * 10):  # until the recurrent state has a usual size
            row = StepInputs(
                np.arange(environments, dtype=np.int32),
                self._random.integers(0, 256, shape, np.uint8),
                np.full(environments, flag, np.uint8),
                np.zeros(environments, np.float32),
                np.zeros(environments, np.int32),
            )
            logits = self._built.inference[0].run(trainer.params(), [row]).behaviour["logits"]
        params = [np.array(array) for array in trainer.params()]
        for (name, _), array in zip(trainer.layout(), params, strict=True):
            if name == "policy/kernel":
                array *= SURE / logits.std()
        trainer.set_params(params)

    def measure(self, precision: str, unrolls: int = 3) -> dict[str, Any]:
        """Return |log rho| of all steps: median, 99th percentile, largest, and the mean's own."""
        ratios = np.abs(log_rho := self._log_rho(unrolls))
        found = {
            "median": float(np.median(ratios)),
            "p99": float(np.quantile(ratios, 0.99)),
            "largest": float(ratios.max()),
            "mean": float(abs(log_rho.mean())),
        }
        limits = LIMITS[precision]
        return {
            **found,
            "steps": int(ratios.size),
            "policy_spread": self._spread,
            "limits": limits,
            "holds": all(found[name] <= limit for name, limit in limits.items()),
        }

    def _log_rho(self, unrolls: int) -> NDArray[np.float32]:
        environments, unroll = self._config.learner.batch_size, self._built.unroll
        assert isinstance(unroll, UnrollSpec)
        writer, random = UnrollWriter(unroll, environments), self._random
        slots = np.arange(environments, dtype=np.int32)
        params, parts = self._built.trainer.params(), list[NDArray[np.float32]]()
        begun = 1.0  # the first step of all; later of some
        while len(parts) < unrolls:
            flags = np.where(random.random(environments) < begun, FIRST, 0).astype(np.uint8)
            reward = np.where(flags, 0, random.random(environments)).astype(np.float32)
            shape = (environments, *self._spec.observation.shape)
            done = writer.add_step(random.integers(0, 256, shape, np.uint8), reward, flags)
            writer.set_outputs(*self._act(params, writer.inputs(slots)))
            begun = 0.05
            if done is not None:
                (batch,) = BatchBuilder(environments).add(done)
                parts.append(self._compare(params, batch.arrays))
        return np.concatenate(parts)

    def _act(self, params: Any, row: StepInputs) -> Any:
        """Act in batches whose sizes and members change from step to step."""
        environments = len(row.slots)
        order = self._random.permutation(environments)
        cuts = np.sort(self._random.choice(np.arange(1, environments), 4, replace=False))
        results: list[Any] = []
        for members in np.split(order, cuts):
            arrays = row._asdict().items()
            cut = {name: array[members] for name, array in arrays if array is not None}
            inputs = row._replace(**cut)
            outputs = self._built.inference[0].run(params, [inputs])
            results.append((outputs.action, outputs.behaviour["logits"], outputs.state_before()))
        back = np.argsort(order)
        action, logits, state = (
            np.concatenate(parts)[back] for parts in zip(*results, strict=True)
        )
        return action, {"logits": logits}, 0, state

    def _compare(self, params: Any, arrays: dict[str, Any]) -> NDArray[np.float32]:
        from keras import ops

        from seedbed.agents.training_step import unroll_of

        built = self._built
        assert isinstance(built.unroll, UnrollSpec)
        unroll = unroll_of(built.agent, built.unroll.frame_stack, built.backend.to_device(arrays))
        (logits, _, _), _ = built.agent.model.stateless_call(
            params, [], unroll.observation, unroll.previous_action, unroll.previous_reward,
            unroll.first, unroll.state,
        )  # fmt: skip
        trained = np.asarray(ops.log_softmax(ops.cast(logits, "float32"), axis=-1))[:-1]
        acted = _log_softmax(arrays["behaviour/logits"])
        self._spread = float(acted.std())
        taken = arrays["action"][: len(acted), :, None]
        of = [np.take_along_axis(each, taken, axis=-1) for each in (trained, acted)]
        difference: NDArray[np.float32] = (of[0] - of[1]).ravel()
        return difference


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = logits - logits.max(-1, keepdims=True)
    result: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result
