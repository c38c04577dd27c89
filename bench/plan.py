"""How large, how long and how often to measure, and experiments of that size."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

T = TypeVar("T")
PONG = "atari:Pong"


class Plan:
    """What all parts share.

    Args:
        folder: For logs, sockets and run directories.
        is_quick: Measure everything once, for a moment and small: to see that it works.
        options: Options of the command by name; None takes the part's own value.
    """

    def __init__(self, folder: Path, is_quick: bool, **options: Any) -> None:
        self.folder, self._is_quick, self._options = folder, is_quick, options
        self.runs = self.pick(3, 1, "runs")
        self.backend = self.pick("tensorflow", "tensorflow", "backend")
        self.model: str | None = self.pick(None, None, "model")  # of `baseline`; None is all widths
        # Of one side of a ratio, and before it.
        self.window_s, self.warm_up_s = self.pick((2.0, 0.5), (0.4, 0.1))
        # Of a training run, after its first updates.
        self.training_window_s, self.training_warm_up_s = self.pick((12.0, 8.0), (1.0, 0.0))
        self.environments, self.batch_size, self.unroll_length = self.pick((32, 32, 20), (4, 4, 5))
        # Of each of an actor's two groups, as in pong-vtrace.yaml.
        self.actor_threads = 2

    def pick(self, full: T, quick: T, option: str = "") -> T:
        """Return the value of an option, or else the one of this benchmark's size."""
        given: T | None = self._options.get(option)
        if given is not None:
            return given
        return quick if self._is_quick else full


def check_parts(names: Iterable[str], known: Sequence[str], bench: str) -> None:
    """Refuse parts that a benchmark has not.

    Args:
        names: The parts that are asked for.
        known: Those of the benchmark.
        bench: Name of the benchmark.

    Raises:
        SeedbedError: USAGE.
    """
    if unknown := sorted(set(names) - set(known)):
        text = f"{bench} has no part {', '.join(unknown)}: one of {', '.join(known)}"
        raise SeedbedError(ExitCode.USAGE, text)


def write_pong(plan: Plan, name: str, environments: int | None = None, **learner: object) -> str:
    """Write an experiment of Pong: the defaults of the schema but for the plan's; return its path.

    Args:
        plan: Its sizes are the experiment's.
        name: Of the file.
        environments: Of a group; None takes the plan's.
        learner: More settings of the section `learner`, as YAML.
    """
    extra = "".join(f"\n  {key}: {value}" for key, value in learner.items())
    envs_per_group = environments or plan.environments
    path = plan.folder / f"{name}.yaml"
    path.write_text(f"""\
name: bench
environment: {{id: "{PONG}"}}
agent: vtrace
actor: {{envs_per_group: {envs_per_group}, threads: {plan.actor_threads}}}
learner:
  backend: {plan.backend}
  batch_size: {plan.batch_size}
  unroll_length: {plan.unroll_length}
  watchdog_timeout_s: 100000
  notice_interval_s: 100000{extra}
evaluation: {{at_end: false}}
""")
    return str(path)
