"""From a sweep to its runs: every experiment is made and checked before the first one starts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from seedbed.config import Experiment
from seedbed.config.load import experiment_text, experiment_tree, put, validate
from seedbed.config.without_effect import reason_of, without_effect
from seedbed.config.yaml_text import dump_yaml
from seedbed.runs.resume import with_value
from seedbed.runtime.exit_codes import ConfigError
from seedbed.sets.combinations import Values, combinations
from seedbed.sets.identity import digest
from seedbed.sets.names import run_name, slug, with_digest
from seedbed.sets.sweep import SET_LETTERS, Sweep

# Of one run each: below a folder that the experiment names, every run has its own.
FOLDERS = ("learner.checkpoint.directory", "learner.replay.directory", "learner.upload")
_NOT_AXES = {"seed": "seeds", "name": "name"}


@dataclass(frozen=True)
class Run:
    """One run of a set.

    Attributes:
        name: Name of the run, of its experiment and its folder.
        digest: Of the settings that change the training.
        values: Values of the axes by key.
        experiment: All settings.
    """

    name: str
    digest: str
    values: Values
    experiment: Experiment

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.experiment.seed

    @property
    def name_with_digest(self) -> str:
        """Name that tells the run from another one of the same name."""
        return with_digest(self.name.removesuffix(f"-s{self.seed}"), self.seed, self.digest)


@dataclass(frozen=True)
class ResolvedSet:
    """A sweep with all its runs.

    Attributes:
        name: Name of the set.
        sweep: What it was made from.
        base: The experiment with the settings of every run, and none of the axes.
        runs: Seed-major: the first seed of every setting, then the second one.
        warnings: What has no effect in some runs.
    """

    name: str
    sweep: Sweep
    base: Experiment
    runs: Sequence[Run]
    warnings: Sequence[str]

    @property
    def settings(self) -> int:
        """Number of settings, each of which has a run for every seed."""
        return len({repr(run.values) for run in self.runs})

    def joined(self, fresh: "ResolvedSet | None") -> "ResolvedSet":
        """Return this set with the runs that confirm it, where there are any."""
        return self if fresh is None else replace(self, runs=[*self.runs, *fresh.runs])


def resolve(sweep: Sweep, source: str) -> ResolvedSet:
    """Make and check the experiment of every run.

    Args:
        sweep: The sweep.
        source: Its name in errors.

    Raises:
        SeedbedError: CONFIG: a setting is wrong, as `load_experiment` tells it; an axis has no
            effect in any run; two runs are the same; a run would never end; and as `combinations`.
    """
    text, file = experiment_text(sweep.experiment)
    tree = experiment_tree(text, file)
    fixed = _put_all(tree, sweep.set, f"{source}: set")
    base = validate(tree, file, fixed)
    for key, instead in _NOT_AXES.items():
        if key in sweep.axes:
            raise ConfigError(f"{source}: axes: {key} is no axis: use {instead} of the sweep")
    settings = combinations(sweep, source)
    seeds = sweep.seeds
    if isinstance(seeds, int):
        seeds = range(base.seed, base.seed + seeds)
    name = _set_name(sweep, base)
    own = {key: _value(base, key) for key in sweep.axes}
    place = f"{source}: axes"
    runs = [_run(tree, values, seed, name, own, place) for seed in seeds for values in settings]
    _check_stop(runs[0], source)
    runs = _with_names_apart(runs, name)
    warnings = list(_check_effect(runs, sweep.axes, source))
    _check_duplicates(runs, source)
    return ResolvedSet(name, sweep, base, runs, warnings)


def _set_name(sweep: Sweep, base: Experiment) -> str:
    if not sweep.name:
        return base.name[:SET_LETTERS].rstrip("-")
    if len(sweep.name) > SET_LETTERS or sweep.name != slug(sweep.name):
        raise ConfigError(
            f"name: {sweep.name!r} has {len(sweep.name)} letters: the name of a set has 1 to "
            f"{SET_LETTERS} lower-case letters, digits and hyphens, with no hyphen at either end, "
            "because each of its runs is named after it"
        )
    return sweep.name


def _put_all(tree: dict[str, Any], values: Mapping[str, Any], place: str) -> list[str]:
    """Set keys of a tree; return them as `a.b=value`, for errors."""
    for key, value in values.items():
        put(tree, key, value, f"{place}: {key}")
    return [f"{key}={_text(value)}" for key, value in values.items()]


def _text(value: Any) -> str:
    return dump_yaml([value], in_one_line=True).strip()[1:-1]


def _value(experiment: Experiment, key: str) -> Any:
    """Return the value of a key, also of one below a free mapping; None where it has none."""
    found: Any = experiment
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else getattr(found, part, None)
    return found


def _run(
    tree: dict[str, Any], values: Values, seed: int, set_name: str, own: Values, place: str
) -> Run:
    tree = deepcopy(tree)
    given = _put_all(tree, values, place)
    tree["seed"] = seed
    experiment = validate(tree, place, given, f"{place}:")
    found = digest(experiment, values)
    return Run(run_name(set_name, values, own, seed, found), found, values, experiment)


def renamed(run: Run, name: str, set_name: str) -> Run:
    """Return a run with another name, and with what follows from it: its folders, its group."""
    update: dict[str, Any] = {"name": name}
    for key in FOLDERS:
        if folder := attrgetter(key)(run.experiment):
            update[key] = f"{folder.rstrip('/').removesuffix(f'/{run.name}')}/{name}"
    wandb = run.experiment.logging.wandb
    if wandb.enabled and not wandb.group:
        update["logging.wandb.group"] = set_name
    experiment = run.experiment
    for key, value in update.items():
        experiment = with_value(experiment, key, value)
    return Run(name, run.digest, run.values, experiment)


def _check_stop(run: Run, source: str) -> None:
    stop = run.experiment.stop
    counted = stop.env_frames, stop.updates, stop.seconds, stop.dollars
    if not any(counted) and stop.mean_return is None:
        raise ConfigError(
            f"{source}: no stop condition, so that the first run would never end: set "
            "stop.env_frames"
        )


def _with_names_apart(runs: Sequence[Run], set_name: str) -> list[Run]:
    """Name the runs; two that would share a name have their digests in it."""
    count = Counter(run.name for run in runs)
    return [
        renamed(run, run.name if count[run.name] == 1 else run.name_with_digest, set_name)
        for run in runs
    ]


def _check_duplicates(runs: Sequence[Run], source: str) -> None:
    by_digest: dict[str, Run] = {}
    for run in runs:
        first = by_digest.setdefault(run.digest, run)
        if first is not run:
            raise ConfigError(
                f"{source}: two runs would be the same: {describe(first.values)} and "
                f"{describe(run.values)}, seed {run.seed}: leave out one of them (exclude), or a "
                "value that is there twice"
            )


def describe_some(values: Sequence[Any], most: int) -> str:
    """Return values in words, and how many more there are than `most`."""
    more = f", and {len(values) - most} more" if len(values) > most else ""
    return f"{', '.join(map(_text, values[:most]))}{more}"


def describe(values: Mapping[str, Any]) -> str:
    """Return the values of a setting in words."""
    return ", ".join(f"{key}={_text(value)}" for key, value in values.items()) or "no axis"


def _check_effect(runs: Sequence[Run], axes: Mapping[str, Any], source: str) -> Iterator[str]:
    """Yield a warning for each axis without effect in some runs; refuse one without any effect."""
    reasons = [list(without_effect(run.experiment)) for run in runs]
    for key in axes:
        found = [reason for some in reasons if (reason := reason_of(key, some))]
        if len(found) == len(runs):
            raise ConfigError(f"{source}: axes: {key} has no effect: {found[0]}")
        if found:
            yield f"{key} has no effect in {len(found)} of {len(runs)} runs: {found[0]}"
