"""What an upgrade renders in a release that is there, under each Helm that the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ApiServer, api_server, helms


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


each_helm = pytest.mark.parametrize("binary", helms(), ids=lambda path: Path(path).name)


@each_helm
def test_a_scaled_number_stays(server: ApiServer, binary: str) -> None:
    server.upgrade(binary=binary)
    server.scale("Deployment", "pong-actor", 50)
    rendered = server.upgrade({"queueName": "q"}, binary=binary)
    assert rendered.one("Deployment", "pong-actor")["spec"]["replicas"] == 50
    given: dict[str, Any] = {"actor": {"replicas": 3}}
    rendered = server.upgrade(given, binary=binary)
    assert rendered.one("Deployment", "pong-actor")["spec"]["replicas"] == 3
