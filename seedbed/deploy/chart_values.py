"""Where the charts are, and the values with which they are rendered."""

from collections.abc import Mapping
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ConfigError

# In the wheel folders, in a checkout links to helm/seedbed and helm/seedbed-set.
CHART = Path(str(files("seedbed") / "chart")).resolve()
SET_CHART = Path(str(files("seedbed") / "set_chart")).resolve()


def check_chart(chart: str) -> None:
    """Refuse a chart that is not there.

    Raises:
        SeedbedError: CONFIG.
    """
    if not (chart.startswith("oci://") or (Path(chart) / "Chart.yaml").is_file()):
        raise ConfigError(
            f"there is no chart in {chart}: Seedbed's wheel and a checkout have one, its "
            "images have none; give --chart a folder with a Chart.yaml, or oci://HOST/PATH"
        )


def profile_file(chart: str, name: str) -> str:
    """Return the file of a profile.

    Raises:
        SeedbedError: CONFIG, there is no such profile.
    """
    own = (CHART if chart.startswith("oci://") else Path(chart)) / "profiles"
    for file in (Path(name), own / f"{name}.yaml"):
        if file.is_file():
            return str(file)
    names = ", ".join(sorted(file.stem for file in own.glob("*.yaml"))) or f"none in {own}"
    raise ConfigError(f"--profile {name} is neither a file nor a profile of the chart: {names}")


def values_file(folder: Path, name: str, values: Mapping[str, Any]) -> str:
    """Write values to a file, and return the option of Helm that reads it."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    return f"--values={file}"


def values_of(experiment: Experiment, text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that follow from an experiment.

    Args:
        experiment: The experiment.
        text: Its file.
        given: Values of --set.
    """
    processes, learners = experiment.actor.processes, experiment.gossip.replicas
    follows: dict[str, Any] = {
        "experimentFile": text,
        "learner": {"replicas": learners, "topology": experiment.gossip.topology},
    }
    if processes:
        follows["actor"] = {"replicas": processes * learners * experiment.learner.hosts}
    if shards := int((given.get("replay") or {}).get("shards") or 0):
        follows["replay"] = {"sequences": -(-experiment.learner.replay.capacity // shards)}
    return follows


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values over others, section by section, as Helm lays them."""
    found = dict(deepcopy(dict(base)))
    for key, value in more.items():
        old = found.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        found[key] = deepcopy(value)
    return found
