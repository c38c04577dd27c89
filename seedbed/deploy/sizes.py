"""Sizes of a release against what the API server stores of one object."""

import base64
import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from seedbed.deploy.plan import ApiObject
from seedbed.runtime.exit_codes import ConfigError

LIMIT_BYTES = 1 << 20  # of a ConfigMap's or Secret's data
_CURE = (
    "shorten the experiment: what is long belongs into the actor's and learner's image, or onto a "
    "volume"
)


def check_sizes(
    objects: list[ApiObject], manifest: str, values: Iterable[str], chart: str | Path
) -> None:
    """Refuse a release of which the API server would refuse an object, or Helm's own Secret.

    Args:
        objects: Of the rendered chart.
        manifest: The rendered chart.
        values: Texts of the files of values.
        chart: The chart's folder; of another place its files are not counted.

    Raises:
        SeedbedError: CONFIG.
    """
    for item in objects:
        if item["kind"] == "ConfigMap":
            name = f"ConfigMap {item['metadata']['name']}"
            _check(name, sum(len(text.encode()) for text in item.get("data", {}).values()), "")
    folder = Path(chart)
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else []
    # As Helm keeps a release, within a twentieth.
    kept = {
        "chart": [base64.b64encode(file.read_bytes()).decode() for file in files],
        "config": list(values),
        "manifest": manifest,
    }
    size = len(base64.b64encode(gzip.compress(json.dumps(kept).encode())))
    _check("Helm's Secret of the release", size, " compressed")


def _check(name: str, size: int, how: str) -> None:
    if size > LIMIT_BYTES:
        raise ConfigError(
            f"{name} has {size:,} bytes{how}, and Kubernetes stores at most {LIMIT_BYTES:,}: "
            f"{_CURE}"
        )
