"""SEED RL as services: cheap actors, central batched inference, one learner that trains.

For notebooks and scripts, `import seedbed` gives:

- `train(experiment, run_dir)`: run a learner and its actors, and return the summary.
- `load_experiment(path or name)`, `Experiment`: all settings of a run.
- `load_policy(run_dir)`, `Policy`: a trained policy that acts and plays.
- `load_progress(run_dir)`: the columns of a run's progress.csv as NumPy arrays.
- `load_runs(folder)`, `Runs`: the runs of a set, their settings and scores, compared.
- `make_env(id, num_envs)`, `VectorEnv`, `TimeStep`: vector environments.
- `ops`: V-trace, n-step returns and frame stacks as functions of arrays.
- `SeedbedError`, `ExitCode`: how everything above fails.

Nothing is imported before it is used: `import seedbed` loads neither Keras nor gRPC.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seedbed import ops as ops
    from seedbed.config.load import load_experiment as load_experiment
    from seedbed.config.schema import Experiment as Experiment
    from seedbed.envs.registry import make_env as make_env
    from seedbed.evaluation.policy import Policy as Policy
    from seedbed.evaluation.policy import load_policy as load_policy
    from seedbed.launch.train import RunSummary as RunSummary
    from seedbed.launch.train import train as train
    from seedbed.runs.progress import load_progress as load_progress
    from seedbed.runtime.exit_codes import ExitCode as ExitCode
    from seedbed.runtime.exit_codes import SeedbedError as SeedbedError
    from seedbed.sets.runs import Runs as Runs
    from seedbed.sets.runs import load_runs as load_runs
    from seedbed.spec import TimeStep as TimeStep
    from seedbed.spec import VectorEnv as VectorEnv

__version__ = "0.2.0.dev0"

# Module of each public name.
_MODULES = {
    "Experiment": "seedbed.config.schema",
    "ExitCode": "seedbed.runtime.exit_codes",
    "Policy": "seedbed.evaluation.policy",
    "RunSummary": "seedbed.launch.train",
    "Runs": "seedbed.sets.runs",
    "SeedbedError": "seedbed.runtime.exit_codes",
    "TimeStep": "seedbed.spec",
    "VectorEnv": "seedbed.spec",
    "load_experiment": "seedbed.config.load",
    "load_policy": "seedbed.evaluation.policy",
    "load_progress": "seedbed.runs.progress",
    "load_runs": "seedbed.sets.runs",
    "make_env": "seedbed.envs.registry",
    "train": "seedbed.launch.train",
}
__all__ = [*_MODULES, "__version__", "ops"]


if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name == "ops":
            return importlib.import_module("seedbed.ops")
        if name not in _MODULES:
            raise AttributeError(f"module 'seedbed' has no attribute {name!r}")
        value: object = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
