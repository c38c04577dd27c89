"""The cost meter's image, which has no gRPC."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["grpc"] = sys.modules["google.protobuf"] = None  # an import of either fails
import seedbed.cli.main
import seedbed.cli.cost
import seedbed.services.cost.cluster, seedbed.services.cost.meter, seedbed.services.cost.prices
import seedbed.services.cost.token_secret
try:
    seedbed.cli.main.main(["cost", "--help"])
except SystemExit as end:
    assert end.code == 0
"""


@pytest.mark.slow
def test_the_meter_needs_no_grpc() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--budget" in done.stdout
