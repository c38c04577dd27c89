"""Write an experiment of an environment, with a comment on each key that one would turn first.

The values are the defaults. The environment is opened once, to see that it is there.
"""

import argparse
import re
from pathlib import Path
from typing import Any

from seedbed.config import Experiment, parse_experiment
from seedbed.config.schema import NAME_LETTERS
from seedbed.config.yaml_text import dump_yaml
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.shortage import cannot_write
from seedbed.runtime.terminal import print_lines

# Key to what turning it does, in the order in which one would try them. `AGENT` is the agent's own
# section. A key whose value is the agent's choice is written as the number that it comes to.
ADVICE = {
    "actor.envs_per_group": "environments of a group: more of them, more diverse batches",
    "learner.optimizer.learning_rate": "lower it where returns fall, raise it where they stand",
    "learner.epochs_per_batch": "more passes need fewer frames, and more computing for each",
    "learner.unroll_length": "steps of each environment in a batch",
    "AGENT.discount": "γ: 0.9 to 0.98 where what counts is near, 0.997 where it is far",
    "AGENT.entropy_cost": "higher explores longer; 0 suits most continuous actions",
    "learner.lstm_units": "256 where one observation does not tell enough",
    "learner.frame_stack": "newest observations that the network sees at once",
    "stop.env_frames": "0 never ends the run; `seedbed stop`, or Ctrl-C, does",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `init ENVIRONMENT`."""
    add = parser.add_argument
    add(
        "environment",
        metavar="ENVIRONMENT",
        help="atari:, football:, lab: or vizdoom:NAME, a Gymnasium id, or module:factory",
    )
    add("--out", type=Path, metavar="FILE", help="the new file (default NAME.yaml in this folder)")


def run(args: argparse.Namespace) -> None:
    """Write the file, and print its name and how to train it.

    Raises:
        SeedbedError: CONFIG or ENVIRONMENT: there is no such environment. OUTPUT: the file is
            there already, or cannot be written.
    """
    name = experiment_name(args.environment)
    path: Path = args.out or Path(f"{name}.yaml")
    if path.exists():
        raise SeedbedError(
            ExitCode.OUTPUT, f"{path} is there already: name another file with --out, or delete it"
        )
    experiment = parse_experiment(
        dump_yaml({"name": name, "environment": {"id": args.environment}})
    )
    from seedbed.envs import make_actor_env

    env = make_actor_env(experiment, 0, 0)
    seen = f"observations {env.spec.observation} and takes {env.spec.action}"
    env.close()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(experiment_text(experiment, seen))
    except OSError as error:
        raise cannot_write(path, error) from error
    print(path)
    print_lines(f"train it with `seedbed train {path}`")


def experiment_name(environment: str) -> str:
    """Return the name of an experiment for an environment's id, such as `pong`."""
    _, _, own = environment.rpartition(":")
    words = re.sub(r"[^a-z0-9]+", "-", own.lower()).strip("-")
    return words[:NAME_LETTERS].strip("-") or "experiment"


def experiment_text(experiment: Experiment, seen: str) -> str:
    """Return the file's text, which reads as the experiment.

    Args:
        experiment: an experiment of which only the environment is given.
        seen: the environment's spaces, in words.
    """
    head = {"name": experiment.name, "environment": {"id": experiment.environment.id}}
    lines = [
        "# All values are the defaults. `seedbed config reference` has all keys.",
        *dump_yaml(head).splitlines(),
        f"# The environment gives {seen}.",
        f"agent: {experiment.agent}",
    ]
    tree: dict[str, Any] = {}
    for key, advice in ADVICE.items():
        path = key.replace("AGENT", experiment.agent)
        *sections, leaf = path.split(".")
        section = tree
        for part in sections:
            section = section.setdefault(part, {})
        section[leaf] = f"{_value(experiment, path)} # {advice}"
    lines += _lines(tree, "")
    return "\n".join(lines) + "\n"


def _value(experiment: Experiment, path: str) -> Any:
    """Return the value of a key; the agent's own number where the key leaves it to the agent."""
    if path == "learner.epochs_per_batch":
        return experiment.passes
    value: Any = experiment
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _lines(tree: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {value}")
    return lines
