"""Read an experiment: YAML, then `--set a.b=c`, then the schema."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from services.common.config.schema import Experiment
from services.common.exit_codes import ExitCode, SeedbedError


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a YAML file, with `a.b=c` overrides (values are YAML).

    Raises:
        SeedbedError: with the file, the key's path, and what is wrong with it.
    """
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise SeedbedError(
            ExitCode.CONFIG, f"cannot read the experiment {path}: {error.strerror}"
        ) from error
    return parse_experiment(text, overrides, str(path))


def parse_experiment(
    text: str, overrides: Sequence[str] = (), source: str = "experiment"
) -> Experiment:
    """As `load_experiment`, from the YAML's text; `source` names it in errors."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SeedbedError(ExitCode.CONFIG, f"{source} is not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise SeedbedError(ExitCode.CONFIG, f"{source} must be a mapping of keys to values")
    for override in overrides:
        _override(tree, override)
    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(dict(item)) for item in error.errors(include_url=False)]
        raise SeedbedError(
            ExitCode.CONFIG, "\n".join(f"{source}: {line}" for line in lines)
        ) from error


def dump_experiment(experiment: Experiment) -> str:
    """The resolved experiment as YAML: every key, defaults too. `parse_experiment` reads it."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=100)


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    if not equals or not path:
        raise SeedbedError(ExitCode.CONFIG, f"--set {override!r} must have the form a.b=value")
    *parents, leaf = path.split(".")
    node = tree
    for key in parents:
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise SeedbedError(
                ExitCode.CONFIG, f"--set {override!r}: {key!r} is a value, not a section"
            )
        node = child
    try:
        node[leaf] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise SeedbedError(ExitCode.CONFIG, f"--set {override!r}: not YAML: {error}") from error
    if isinstance(node[leaf], str):
        # YAML 1.1 reads 1e-4 as text; people mean a number.
        with contextlib.suppress(ValueError):
            node[leaf] = float(node[leaf])


def _explain(item: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in item["loc"])
    given = item.get("input")
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return f"{path}: unknown key (given {given!r}); `seedbed config schema` lists the keys"
    if item["type"] == "missing":
        return f"{path}: missing, and it has no default"
    if isinstance(given, dict):
        return f"{path}: {message}" if path else message
    return f"{path}: {message}, given {given!r}"
