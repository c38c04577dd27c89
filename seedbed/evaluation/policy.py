"""A trained policy for notebooks and scripts. Keras is imported when a policy is loaded."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbed import backends
from seedbed.config import Experiment
from seedbed.evaluation.atari_protocol import apply_atari_protocol
from seedbed.packed import PackedSpec
from seedbed.runs.stored import read_checkpoint
from seedbed.runs.trust import stored_experiment
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.text import counted
from seedbed.spec import ArraySpec, EnvironmentSpec, TimeStep

if TYPE_CHECKING:
    from seedbed.evaluation.episodes import EvaluationResult
    from seedbed.evaluation.trained_policy import PolicyRunner, TrainedPolicy


def load_policy(
    run_dir: str | Path,
    checkpoint: str = "newest",
    backend: str | None = None,
    trust: bool = False,
) -> "Policy":
    """Load the policy of a run.

    Args:
        run_dir: Run directory, or a `.safetensors` checkpoint.
        checkpoint: `"newest"`, `"best"` (of the evaluations during training), or a number of
            updates. Of a run of several learners, `"newest"` is the average of their parameters.
        backend: `"tensorflow"` or `"jax"`. None takes the backend that Keras has in this process,
            else the one that the environment variable `KERAS_BACKEND` names, else the run's.
        trust: Import and call what the file names as `module:attribute`: an environment, a network
            or an agent of your own. False refuses such a file, because it can run any code.

    Raises:
        SeedbedError: CHECKPOINT_READ, there is no such checkpoint; CONFIG, it names
            `module:attribute`, and `trust` is False; BACKEND, the backend is not
            installed, or Keras runs another one in this process.
    """
    found = read_checkpoint(run_dir, checkpoint)
    experiment = stored_experiment(found, trust)
    if backend is None and "keras" in sys.modules:
        backend = sys.modules["keras"].backend.backend()
    chosen = backend or os.environ.get("KERAS_BACKEND") or experiment.learner.backend
    used = backends.use(chosen, device=experiment.learner.device)
    # This imports Keras, so after its backend is fixed.
    from seedbed.evaluation.trained_policy import TrainedPolicy

    policy = TrainedPolicy.from_checkpoint(found, experiment, used)
    return Policy(policy, experiment, found.path, found.updates)


class Policy:
    """A trained policy, which acts in vector environments of any number of environments.

    Attributes:
        experiment: The experiment that the policy was trained with.
        spec: Observations and actions.
        checkpoint: Path of the checkpoint.
        updates: Updates of the parameters.
    """

    def __init__(
        self, trained: "TrainedPolicy", experiment: Experiment, checkpoint: str, updates: int
    ) -> None:
        self.experiment, self.checkpoint, self.updates = experiment, checkpoint, updates
        self.spec: EnvironmentSpec = trained.spec
        self._trained = trained
        self._runner: PolicyRunner | None = None
        self._num_envs = 0
        self._begins = True  # the next call of `act` is the first after `reset`

    def __repr__(self) -> str:
        return (
            f"<Policy of {self.experiment.name} after {counted(self.updates, 'update')}: "
            f"observation {self.spec.observation}, {self.spec.action}>"
        )

    def reset(self, num_envs: int = 1, greedy: bool | None = None, seed: int = 0) -> None:
        """Prepare for `num_envs` new environments, and compile inference for their number.

        A later episode of an environment needs no reset, because `first` marks its beginning.

        Args:
            num_envs: Number of environments, E.
            greedy: Take the best action instead of sampling. None does what `evaluation.policy`
                and the agent do in an evaluation.
            seed: Seed of the sampled actions.
        """
        from seedbed.evaluation.trained_policy import PolicyRunner

        self._runner = PolicyRunner(self._trained, num_envs, seed, self._greedy(greedy))
        self._num_envs = num_envs
        self._begins = True

    def act(
        self,
        observation: ArrayLike | Mapping[str, ArrayLike],
        reward: ArrayLike | None = None,
        first: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Choose an action for each environment.

        The policy keeps what it needs of the past itself: the frame stack, the recurrent state
        and the previous action.

        Args:
            observation: [E, *shape], the newest single observations, as a vector environment of
                `make_env` gives them; of several arrays a mapping, by the names of
                `spec.observation.entries`, or packed rows.
            reward: [E] float32, the raw reward that came with the observation; None for zeros.
                Only networks with an LSTM use it.
            first: [E] bool, the observation is the first of an episode. None is True in the first
                call after `reset` and False later.

        Returns:
            [E, *action] of `spec.action`: [E] int32, each in 0 .. `spec.actions` - 1; [E, parts]
            int32; or [E, D] float32 in [-1, 1], to be scaled to the bounds of the space.

        Raises:
            ValueError: an array does not have the shape [E, ...] of `reset` and the spec.
        """
        if isinstance(observation, Mapping):
            observation = _packed(self.spec.observation, observation)
        if self._runner is None:
            self.reset(len(np.asarray(observation)))
        assert self._runner is not None
        e, spec = self._num_envs, self.spec.observation
        none = np.zeros(e, np.bool_)
        begins = np.full(e, self._begins)
        step = TimeStep(
            observation=_checked("observation", observation, (e, *spec.shape), spec.dtype),
            reward=_checked("reward", none if reward is None else reward, (e,), "float32"),
            terminated=none,
            truncated=none,
            life_lost=none,
            first=_checked("first", begins if first is None else first, (e,), "bool"),
        )
        self._begins = False
        return self._runner.act(step)

    def play(
        self,
        episodes: int = 1,
        num_envs: int | None = None,
        greedy: bool | None = None,
        seed: int | None = None,
        max_steps: int = 100_000,
    ) -> "EvaluationResult":
        """Play episodes of the training's environment, as `seedbed evaluate` does.

        Atari is played by the protocol of the published scores: up to 30 no-ops, at most 108,000
        frames an episode, no sticky actions.

        Args:
            episodes: Number of episodes.
            num_envs: Environments that step in lock-step; None for `evaluation.num_envs`.
            greedy: As in `reset`.
            seed: Seed of environments and actions; None for the experiment's.
            max_steps: Steps after which an episode is cut.

        Returns:
            Statistics of the returns, and `returns` with one number an episode.

        Raises:
            SeedbedError: CONFIG, no episode is asked for.
        """
        from seedbed.evaluation.episodes import EvaluationSettings, evaluate

        if episodes < 1:
            raise ConfigError(f"episodes {episodes}: play at least 1")
        experiment, _ = apply_atari_protocol(self.experiment)
        settings = EvaluationSettings(
            episodes=episodes,
            greedy=self._greedy(greedy),
            num_envs=num_envs or experiment.evaluation.num_envs,
            seed=experiment.seed if seed is None else seed,
            max_steps=max_steps,
        )
        return evaluate(self._trained, experiment, settings)

    def _greedy(self, greedy: bool | None) -> bool:
        return self._trained.is_greedy(self.experiment) if greedy is None else greedy


def _packed(spec: ArraySpec, arrays: Mapping[str, ArrayLike]) -> NDArray[np.uint8]:
    """Return rows [E, bytes] of the entries [E, ...].

    Raises:
        ValueError: the observation has other entries.
    """
    names = [entry.name for entry in spec.entries] if isinstance(spec, PackedSpec) else []
    if not isinstance(spec, PackedSpec) or set(arrays) != set(names):
        raise ValueError(f"observation has the entries {sorted(arrays)}, not {sorted(names)}")
    rows = zip(*(np.asarray(arrays[name]) for name in names), strict=True)
    return np.stack([spec.pack(dict(zip(names, row, strict=True))) for row in rows])


def _checked(name: str, values: ArrayLike, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    array = np.asarray(values, dtype)
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {list(array.shape)}, and {list(shape)} is expected")
    return array
