"""Read an experiment: YAML, then `--set a.b=c`, then the schema."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from seedbed.config.explain import DEFAULT_AGENT, explain
from seedbed.config.keys import sections
from seedbed.config.schema import Experiment
from seedbed.config.shipped import experiment_file
from seedbed.config.yaml_text import dump_yaml, load_yaml
from seedbed.runtime.exit_codes import ConfigError

# Names of the settings of earlier starts, in a run directory.
_EARLIER = re.compile(r"experiment\.\d+\.yaml")


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment from a YAML file.

    Args:
        path: A file, a run directory, or the name of a shipped experiment, such as
            `cartpole-vtrace`.
        overrides: `a.b=value` each; the value is YAML, and later ones win.

    Raises:
        SeedbedError: CONFIG, with the file, the key's path, and what is wrong with it.
    """
    text, source = experiment_text(path)
    return parse_experiment(text, overrides, source)


def experiment_text(path: str | Path) -> tuple[str, str]:
    """Return the YAML of an experiment, and the path of its file.

    Args:
        path: As for `load_experiment`.

    Raises:
        SeedbedError: CONFIG, the file cannot be read, or is no YAML file.
    """
    run = run_of(path)
    path = run / "experiment.yaml" if run is not None else experiment_file(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    except OSError as error:
        near = get_close_matches(path.name, _beside(path), 2, 0.5)
        meant = f"; did you mean {' or '.join(str(path.with_name(name)) for name in near)}?"
        text = f"cannot read the experiment {path}: {error.strerror}{meant if near else ''}"
        raise ConfigError(text) from error
    if path.suffix not in (".yaml", ".yml") and not _is_mapping(text):
        raise ConfigError(f"{path} is no experiment: name a YAML file, or a shipped experiment")
    return text, str(path)


def _is_mapping(text: str) -> bool:
    try:
        return isinstance(load_yaml(text), dict)
    except yaml.YAMLError:
        return False


def _beside(path: Path) -> list[str]:
    """Return the names of the YAML files in the folder of `path`."""
    return [file.name for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []


def run_of(path: str | Path) -> Path | None:
    """Return the run directory that `path` names, itself or by the experiment that it keeps."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    beside = ("seedbed.lock", "status.json", "summary.json")
    kept = folder / "experiment.yaml"
    is_run = kept.is_file() and any((folder / name).is_file() for name in beside)
    return folder if is_run and (path == folder or path.name == kept.name) else None


def default_run_directory(path: str | Path, name: str) -> Path:
    """Return the run directory of an experiment for which none is given.

    Raises:
        SeedbedError: CONFIG: the file has the settings of an earlier start of a run.
    """
    folder = Path(path).parent
    if _EARLIER.fullmatch(Path(path).name) and run_of(folder) is not None:
        raise ConfigError(
            f"{path} has the settings of an earlier start of the run {folder}: name {folder} to "
            "resume that run, or give --run-dir for a new one"
        )
    return run_of(path) or Path("runs") / name


def parse_experiment(
    text: str, overrides: Sequence[str] = (), source: str = "experiment"
) -> Experiment:
    """Parse an experiment from the text of a YAML file.

    Args:
        text: YAML.
        overrides: As for `load_experiment`.
        source: Name of the text in errors.

    Raises:
        SeedbedError: CONFIG, as `load_experiment`.
    """
    tree = experiment_tree(text, source)
    for setting in overrides:
        override(tree, setting)
    return validate(tree, source, overrides)


def experiment_tree(text: str, source: str) -> dict[str, Any]:
    """Return the plain data of an experiment's YAML, as yet unchecked.

    Raises:
        SeedbedError: CONFIG, the text is not YAML, or no mapping.
    """
    tree = _yaml(text, f"{source} is")
    if not isinstance(tree, dict):
        raise ConfigError(f"{source} must be a mapping of keys to values")
    return tree


def validate(
    tree: dict[str, Any], source: str, overrides: Sequence[str] = (), option: str = "--set"
) -> Experiment:
    """Return the experiment of plain data.

    Args:
        tree: Keys and values; `overrides` are in it.
        source: Name of the data in errors.
        overrides: `a.b=value` each, which an error names where it is theirs.
        option: What has the overrides, in errors.

    Raises:
        SeedbedError: CONFIG, as `load_experiment`.
    """
    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        found = [dict(item) for item in error.errors(include_url=False)]
        agent = str(tree.get("agent", DEFAULT_AGENT))
        lines = [explain(item, source, overrides, agent, option) for item in found]
        raise ConfigError("\n".join(lines)) from error


def dump_experiment(experiment: Experiment, named_only: bool = False) -> str:
    """Return the resolved experiment as YAML. `parse_experiment` reads it.

    Args:
        experiment: The experiment.
        named_only: Leave out the keys that neither a file nor a command has named.
    """
    tree = experiment.model_dump(mode="json", exclude_unset=named_only)
    return dump_yaml(tree)


def override(tree: dict[str, Any], setting: str) -> None:
    """Set a key of a tree as `--set` does.

    Keys that the mapping of a section leaves out stay as they are. An empty mapping sets all keys
    of the section to their defaults.

    Args:
        tree: Changed in place.
        setting: `a.b=value`; the value is YAML.

    Raises:
        SeedbedError: CONFIG, the setting has another form, or names a key below a value.
    """
    path, equals, value = setting.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {setting!r} must have the form a.b=value")
    put(tree, path, _yaml(value, f"--set {setting!r}:"), f"--set {setting!r}")


def put(tree: dict[str, Any], path: str, value: Any, place: str) -> None:
    """Set a key of a tree to plain data, as `override` does.

    Args:
        tree: Changed in place.
        path: Key, with dots.
        value: Plain data.
        place: Where the value comes from, the beginning of an error.

    Raises:
        SeedbedError: CONFIG, the key is below a value.
    """
    *parents, leaf = path.split(".")
    node: Any = tree
    for key in parents:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{place}: {key!r} is a value, not a section")
    keeps_rest = isinstance(value, dict) and value and path in dict(sections())
    if not keeps_rest:
        node[leaf] = value
        return
    if not isinstance(node.get(leaf), dict):
        node[leaf] = {}
    for key, inner in value.items():
        put(tree, f"{path}.{key}", inner, place)


def _yaml(text: str, source: str) -> Any:
    """Parse YAML; `source` is the beginning of an error."""
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} not YAML: {error}") from error
