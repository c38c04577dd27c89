"""The parts of `seedbed bench --quick` that start many learners, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.quick import quick


def check_gossip(results: dict[str, Any]) -> None:
    result = results["gossip"]
    for case in result["exchange"].values():
        assert 1 < case["ratio"] <= 1.02, "of the parameters' bytes, as the wire carries them"
    cases = result["speed"]["cases"]
    assert set(cases) == {"1 learner", "2 gossip", "2 allreduce", "2 hogwild"}
    assert all(case["env_frames"] > 0 for case in cases.values())
    assert all(case["frames_per_kilojoule"] > 0 for case in cases.values())
    assert cases["2 gossip"]["gossip_mixes"] > 0
    assert result["speed"]["gossip_share_of_time"]["2 gossip"] > 0
    assert set(result["straggler"]["kept"]) == {"gossip", "allreduce", "hogwild"}


@pytest.mark.slow
def test_quick_gossip(tmp_path: Path) -> None:
    check_gossip(quick("gossip", tmp_path))
