"""A small set of runs under kills and a full disk, to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sets.torture import VOLUME, Torture
from tests.support.volume import mounted


@pytest.mark.slow
def test_a_set_survives_kills_of_its_sweep_its_learners_and_its_actors(tmp_path: Path) -> None:
    with mounted(tmp_path / "volume", VOLUME) as can:
        torture = Torture(tmp_path, runs=4, seed=0, volume=tmp_path / "volume" if can else None)
        while sum(torture.kills.values()) < 6:
            torture.kill()
        torture.finish()
        torture.check()
