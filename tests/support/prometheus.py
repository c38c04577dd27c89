"""A real Prometheus, and what dashboards ask it."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import free_port


class Prometheus:
    """A Prometheus of a test.

    Attributes:
        address: Its address.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with (folder / "prometheus.log").open("wb") as log:
            self._popen = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        """End it."""
        self._popen.terminate()
        self._popen.wait()


def ask(address: str, query: str) -> list[Any]:
    """The samples of a query, now."""
    text = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{address}/api/v1/query?{text}", timeout=10) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


def queries_of(dashboard: dict[str, Any]) -> dict[str, str]:
    """Every query of a dashboard, by its panel and its legend."""
    return {
        f"{panel['title']} / {target['legendFormat']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }


def assert_layout(dashboard: dict[str, Any]) -> None:
    """Assert that no panels overlap, and that each takes the data source that people choose."""
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
