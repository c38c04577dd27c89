"""Sizes of a release against what the API server stores of one object."""

import base64
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from seedbed.deploy.plan import ApiObject
from seedbed.runtime.exit_codes import ConfigError

LIMIT_BYTES = 1 << 20  # of a ConfigMap's or Secret's data
CURE = (
    "shorten the experiment: what is long belongs into the actor's and learner's image, or onto a "
    "volume"
)


class Sizes(NamedTuple):
    """Bytes of a release.

    Attributes:
        largest: Its largest object.
        name: Kind and name of that object.
        release: Helm's own Secret.
    """

    largest: int
    name: str
    release: int


def check_sizes(
    objects: list[ApiObject],
    manifest: str,
    values: Iterable[str],
    chart: str | Path,
    cure: str = CURE,
) -> Sizes:
    """Refuse a release of which the API server would refuse an object, or Helm's own Secret.

    Args:
        objects: Of the rendered chart.
        manifest: The rendered chart.
        values: Texts of the files of values.
        chart: The chart's folder; of another place its files are not counted.
        cure: What to do, at the end of the error.

    Raises:
        SeedbedError: CONFIG.
    """
    found = {f"{item['kind']} {item['metadata']['name']}": _size(item) for item in objects}
    for name, size in found.items():
        _check(name, size, "", cure)
    folder = Path(chart)
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else []
    # As Helm keeps a release, within a twentieth.
    kept = {
        "chart": [base64.b64encode(file.read_bytes()).decode() for file in files],
        "config": list(values),
        "manifest": manifest,
    }
    size = len(base64.b64encode(gzip.compress(json.dumps(kept).encode())))
    _check("Helm's Secret of the release", size, " compressed", cure)
    name = max(found, key=lambda one: found[one])
    return Sizes(found[name], name, size)


def _size(item: ApiObject) -> int:
    """Return the bytes of what the API server counts of an object."""
    if item["kind"] != "ConfigMap":
        return len(json.dumps(item).encode())
    packed = sum(len(base64.b64decode(text)) for text in item.get("binaryData", {}).values())
    return packed + sum(len(text.encode()) for text in item.get("data", {}).values())


def _check(name: str, size: int, how: str, cure: str) -> None:
    if size > LIMIT_BYTES:
        raise ConfigError(
            f"{name} has {size:,} bytes{how}, and Kubernetes stores at most {LIMIT_BYTES:,}: {cure}"
        )
