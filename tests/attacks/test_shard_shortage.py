"""A shard without memory or on a read-only volume says so: at its start, or with both sizes."""

from __future__ import annotations

import os
import resource
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedbed.replay.codec import spec_message
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc import channels
from seedbed.runtime.exit_codes import ExitCode
from seedbed.v1 import replay_pb2 as wire
from tests.support.raw_wire import metadata_of
from tests.support.replay_content import SPEC
from tests.support.shard_process import ALPHA, ShardProcess, error_of, shards

LARGE = replace(SPEC, observation=replace(SPEC.observation, shape=(256, 256)))


def hello(address: str, spec: SequenceSpec) -> tuple[grpc.StatusCode, str]:
    first = wire.ReplayHello(
        protocol_version=1,
        oldest_protocol_version=1,
        learner="x",
        spec=spec_message(spec),
        priority_exponent=ALPHA,
    )
    with channels.channel(address) as channel:
        call: Any = channel.stream_stream("/seedbed.v1.Replay/Insert")
        return error_of(call(iter([]), metadata=metadata_of(first), timeout=30))


@pytest.mark.parametrize(("directory", "capacity"), [(False, 10_000), (True, 1000)])
def test_memory_that_a_shard_does_not_get_is_named_with_its_size(
    tmp_path: Path, directory: bool, capacity: int
) -> None:
    with shards(tmp_path, 1, capacity=capacity, directory=directory) as (shard,):
        assert shard.process is not None
        pages = int(Path(f"/proc/{shard.process.pid}/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + (128 << 20)
        resource.prlimit(shard.process.pid, resource.RLIMIT_AS, (limit, limit))
        code, said = hello(shard.address, LARGE)
        assert code is grpc.StatusCode.FAILED_PRECONDITION, said
        assert "memory is short" in said or "hold fewer sequences" in said, said
        assert f"{capacity} sequences" in said
        assert "GiB" in said
        assert "Traceback" not in shard.process.said
        shard.state()  # it lives


def test_a_shard_on_a_read_only_volume_ends_at_its_start(tmp_path: Path) -> None:
    mounted = tmp_path / "volume"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(mounted)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    shard = ShardProcess(tmp_path)
    shard.arguments[-1] = str(mounted)
    try:
        shard.start()
        assert shard.process is not None
        assert shard.process.wait(60) == ExitCode.REPLAY_FILES
    finally:
        shard.end()
        subprocess.run(["umount", str(mounted)], check=True)
    assert f"cannot use {mounted}: Read-only file system" in shard.process.said
    assert "mount it for writing" in shard.process.said
