"""A sweep: an experiment, and what varies in its runs. SWEEP.yaml, or the options of a command."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from inspect import isclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from seedbed.config.explain import explain
from seedbed.config.shipped import experiment_file, shipped_sweeps
from seedbed.config.yaml_text import load_yaml
from seedbed.runtime.exit_codes import ConfigError
from seedbed.sets.ranges import KINDS, Range, holds_range, is_range, read_range
from seedbed.sets.values import read_values
from seedbed.settings import FREE, KeyClass, NonNegative, Section

MOST_RUNS = 1000
# Of the name of a set, so that the names of its runs have room for what tells them apart.
SET_LETTERS = 23


class Budget(Section):
    """Bounds of a whole set: the first that is met ends all its runs. 0 is none."""

    key_class: ClassVar[KeyClass] = FREE

    dollars: NonNegative = 0
    """Cost of all runs together, in US dollars."""
    frames: NonNegative = 0
    """Emulator frames of all runs together."""
    hours: NonNegative = 0
    """Hours during which at least one run trains."""


class Draws(Section):
    """How many values of the ranges are tried."""

    key_class: ClassVar[KeyClass] = FREE

    number: Annotated[int, Field(ge=0, le=MOST_RUNS)] = 0
    """Number of draws; each has one value of every range."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed from which every draw follows."""


class Halving(Section):
    """Successive halving: settings are ranked at rungs of more and more frames; the best go on."""

    key_class: ClassVar[KeyClass] = FREE

    first: Annotated[int, Field(ge=0)] = 0
    """Emulator frames of the first rung; 0 is no halving. The last rung is `stop.env_frames`."""
    factor: Annotated[int, Field(ge=2)] = 3
    """How many times the frames of the rung before a rung has, for one setting of so many."""


def _draws(given: Any) -> Any:
    return {"number": given} if not isinstance(given, dict) else given


def _seeds(given: Any) -> tuple[int, ...] | int:
    """Return the seeds that are named, or how many there are."""
    numbers = given if isinstance(given, list) else [given]
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in numbers):
        raise ValueError("must be a number of seeds, such as 5, or a list of seeds")
    if not isinstance(given, list):
        if given < 1:
            raise ValueError("must be at least 1")
        return int(given)
    if not numbers:
        raise ValueError("must name at least one seed")
    if twice := sorted({one for one in numbers if numbers.count(one) > 1}):
        raise ValueError(f"has {twice[0]} twice")
    return tuple(numbers)


class Sweep(Section):
    """An experiment and what varies in its runs."""

    key_class: ClassVar[KeyClass] = FREE

    name: str = ""
    """Name of the set; empty is the experiment's."""
    experiment: str
    """A YAML file, from the folder of this one, or the name of a shipped experiment."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of every run, by key."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Values to try, by key: a list, or a range such as `{log_uniform: [1e-5, 1e-2]}`."""
    seeds: Annotated[Any, BeforeValidator(_seeds)] = 1
    """Seeds of each setting: their number, counted from the experiment's own, or a list."""
    draws: Annotated[Draws, BeforeValidator(_draws)] = Field(default_factory=Draws)
    """Draws from the ranges: a number, or `{number: 24, seed: 1}`."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Combinations of values that are left out, such as `{agent: dqn, learner.lstm_units: 256}`."""
    together: list[list[str]] = Field(default_factory=list)
    """Axes that move as one: their first values are tried together, then their second ones."""
    budget: Budget = Field(default_factory=Budget)
    halving: Halving = Field(default_factory=Halving)


Axis = tuple[Any, ...] | Range


def read_sweep(
    target: str | Path,
    settings: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Sweep:
    """Read a sweep from a file, a shipped sweep, or an experiment, and options over it.

    Args:
        target: A sweep's file, or an experiment as for `load_experiment`.
        settings: `a.b=value` of every run, or `a.b=value,value` of an axis, each. It takes the
            place of what the file has for the key.
        options: Further keys of the sweep, as a file has them.

    Raises:
        SeedbedError: CONFIG, with the file, the key and what is wrong with it.
    """
    tree, source = _tree(target)
    if tree.get("axes", True) in ({}, None):
        raise ConfigError(f"{source}: axes: has no key: give one its values, or leave axes out")
    given: set[str] = set()
    for setting in settings:
        key = setting.partition("=")[0]
        if key in given:
            raise ConfigError(
                f"--set {key} is given twice: give all its values at once (--set {key}=A,B)"
            )
        given.add(key)
        _put_setting(tree, setting)
    for name, value in (options or {}).items():
        if isinstance(value, Mapping):
            tree[name] = {**_section(tree, name, source), **value}
        else:
            tree[name] = value
    if unknown := [name for name in tree if name not in Sweep.model_fields]:
        raise ConfigError(f"{source}: {unknown[0]}: unknown key{_near(unknown[0])}")
    try:
        sweep = Sweep.model_validate(tree)
    except ValidationError as error:
        found = [dict(item) for item in error.errors(include_url=False)]
        raise ConfigError("\n".join(_explain(item, source) for item in found)) from error
    for key, value in sweep.set.items():
        if key in sweep.axes:
            raise ConfigError(f"{source}: {key} is below set and below axes: leave out one of them")
        if holds_range(value):
            raise ConfigError(f"{source}: set: {key}: {value} is a range, which belongs below axes")
    return sweep


def _explain(item: dict[str, Any], source: str) -> str:
    name, *inner = map(str, item["loc"])
    section = Sweep.model_fields[name].annotation
    if item["type"] != "extra_forbidden" or not inner or not isclass(section):
        return explain(item, source, ())
    fields = getattr(section, "model_fields", {})
    near = get_close_matches(inner[0], fields, 1, 0.5)
    words = f"did you mean {near[0]}?" if near else f"it has {', '.join(fields)}"
    return f"{source}: {name}: {inner[0]}: unknown key: {words}"


def is_sweep(tree: Any) -> bool:
    """Return whether plain data of a YAML file is a sweep, and not an experiment."""
    keys = {"experiment", "axes", "draws"}  # of which an experiment has none
    return isinstance(tree, dict) and not keys.isdisjoint(tree) and "environment" not in tree


def _tree(target: str | Path) -> tuple[dict[str, Any], str]:
    """Return the plain data of a sweep, and the name of its file in errors."""
    sweeps = shipped_sweeps()
    try:
        file = sweeps.get(str(target)) or experiment_file(target)
    except ConfigError as error:
        if Path(target).is_dir():
            raise
        raise ConfigError(f"{error}, or a sweep: {', '.join(sweeps)}") from error
    try:
        tree = load_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    if not is_sweep(tree):
        return {"experiment": str(target)}, str(target)
    named = tree.get("experiment")
    if isinstance(named, str) and Path(named).suffix in (".yaml", ".yml"):
        tree["experiment"] = str(file.parent / named)
    return tree, str(file)


def _section(tree: dict[str, Any], name: str, source: str) -> dict[str, Any]:
    found = tree.setdefault(name, {})
    if name == "draws" and isinstance(found, int):
        return {"number": found}
    if not isinstance(found, dict):
        raise ConfigError(f"{source}: {name}: must be a mapping of keys to values, given {found!r}")
    return found


def _put_setting(tree: dict[str, Any], setting: str) -> None:
    path, equals, text = setting.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {setting!r} must have the form a.b=value or a.b=value,value")
    try:
        values = read_values(text)
    except ValueError as error:
        raise ConfigError(f"--set {setting!r}: {error}") from error
    fixed, axes = _section(tree, "set", "the sweep"), _section(tree, "axes", "the sweep")
    fixed.pop(path, None)
    axes.pop(path, None)
    if len(values) > 1:
        axes[path] = values
    elif is_range(values[0]):
        axes[path] = values[0]
    else:
        fixed[path] = values[0]


def _near(name: str) -> str:
    near = get_close_matches(name, Sweep.model_fields, 2, 0.5)
    if near:
        return f": did you mean {' or '.join(near)}?"
    fields = ", ".join(Sweep.model_fields)
    return f": a sweep has {fields}; a setting of the experiment belongs below set or axes"


def axes_of(sweep: Sweep, source: str) -> dict[str, Axis]:
    """Return the axes of a sweep by key.

    Raises:
        SeedbedError: CONFIG, an axis is empty, or is neither a list nor a range.
    """
    found: dict[str, Axis] = {}
    for key, given in sweep.axes.items():
        place = f"{source}: axes: {key}"
        if isinstance(given, list):
            if not given:
                raise ConfigError(f"{place}: has no values")
            if ranges := [value for value in given if holds_range(value)]:
                raise ConfigError(
                    f"{place}: {ranges[0]} is a range within a list: give the range alone, and "
                    "values to choose from as {choice: [...]}"
                )
            found[key] = tuple(given)
        elif is_range(given):
            try:
                found[key] = read_range(given)
            except ValueError as error:
                raise ConfigError(f"{place}: {error}") from error
        else:
            kind = next(iter(given), "") if isinstance(given, dict) else ""
            near = get_close_matches(str(kind), KINDS, 1, 0.7)
            raise ConfigError(
                f"{place}: must be a list of values, or a range such as "
                f"{{log_uniform: [1e-5, 1e-2]}}, given {given!r}; a key has dots "
                "(learner.batch_size), and a single value belongs below set"
                + (f"; did you mean {near[0]}?" if near else "")
            )
    return found
