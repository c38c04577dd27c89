"""What a set of a cluster is to do: its sweep, its limits, and templates of its runs' objects."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.runtime.exit_codes import ConfigError
from seedbed.sets.confirmation import CHOICE_FILE, read_choice
from seedbed.sets.needs import Limits
from seedbed.sets.resolve import ResolvedSet, resolve
from seedbed.sets.run_objects import PLACEHOLDER, shape_of
from seedbed.sets.sweep import read_sweep


class Spec(NamedTuple):
    """A set, as its release has it.

    Attributes:
        wanted: The sweep with all its runs.
        limits: Its limits.
        shapes: Templates of objects, by the shape of a run.
        fresh: Runs that confirm what the set has chosen; None where nothing is confirmed.
    """

    wanted: ResolvedSet
    limits: Limits
    shapes: dict[str, list[dict[str, Any]]]
    fresh: ResolvedSet | None = None

    def kinds(self, run: str) -> list[tuple[str, str, str]]:
        """Return kind, name and component of every object that a run of any shape has.

        An upgrade may have taken the shape of a run that is there.
        """
        found = {
            (
                item["kind"],
                item["metadata"]["name"].replace(PLACEHOLDER, run),
                item["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""),
            ): None
            for template in self.shapes.values()
            for item in template
        }
        return list(found)

    def template(self, experiment: Any) -> list[dict[str, Any]]:
        """Return the objects of a run's shape.

        Raises:
            SeedbedError: CONFIG, there is none.
        """
        shape = shape_of(experiment)
        if shape not in self.shapes:
            raise ConfigError(
                f"{experiment.name} has settings that no template of the set has ({shape}): run "
                "the same `seedbed deploy` again"
            )
        return self.shapes[shape]


def read_spec(folder: Path) -> Spec:
    """Return the set of a mounted ConfigMap.

    Args:
        folder: With sweep.yaml, experiment.yaml, limits.json and templates.json.gz; and with
            confirm.json where the set confirms.

    Raises:
        SeedbedError: CONFIG, a file is wrong.
    """
    wanted = resolve(read_sweep(folder / "sweep.yaml"), str(folder / "sweep.yaml"))
    choice = folder / CHOICE_FILE
    try:
        limits = Limits(**json.loads((folder / "limits.json").read_text()))
        text = choice.read_text() if choice.exists() else ""
        templates = json.loads(gzip.decompress((folder / "templates.json.gz").read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot read the set in {folder}: {error}") from error
    fresh = read_choice(wanted, text) if text else None
    return Spec(wanted, limits, templates["shapes"], fresh)
