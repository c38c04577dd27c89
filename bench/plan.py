"""How long and how often to measure: the full benchmark, or a quick look at whether it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

PONG = "atari:Pong"


def _of(full: Any, quick: Any) -> Any:
    """Return a setting: its value, and the one of `--quick`."""
    return field(default=full, metadata={"quick": quick})


@dataclass(frozen=True)
class Plan:
    """Settings of all measurements. `folder` is for logs, sockets and run directories."""

    folder: Path
    runs: int = _of(3, 1)
    window_s: float = _of(2.0, 0.4)  # of one side of an actor's or the wire's ratio
    warm_up_s: float = _of(0.5, 0.1)  # before each window
    actor_environments: Sequence[int] = _of((1, 8, 16, 32, 64), (2,))
    actor_threads: int = 2  # of each of an actor's two groups, as in pong-vtrace.yaml
    worker_environments: int = _of(8, 4)
    wire_environments: Sequence[int] = _of((1, 8, 32), (2,))
    wire_streams: Sequence[int] = _of((2, 128), (2,))
    growth_environments: Sequence[int] = _of((2, 32, 256, 2048, 12480), (2, 8))
    growth_unrolls: Sequence[int] = _of((1, 4, 16, 64), (1, 4))
    growth_sequences: Sequence[int] = _of((1000, 10_000, 100_000, 1_000_000), (100, 1000))
    growth_learners: Sequence[int] = _of((2, 4, 8, 16, 32, 64), (2, 4))
    networks: Sequence[str] = _of(("nature", "impala_shallow"), ("nature",))
    system_warm_up_s: float = _of(8.0, 0.0)  # of a training run, after its first updates
    system_window_s: float = _of(12.0, 1.0)
    part_window_s: float = _of(2.5, 0.4)
    environments: int = _of(32, 4)
    batch_size: int = _of(32, 4)
    unroll_length: int = _of(20, 5)
    slots: tuple[int, int] = _of((64, 1024), (8, 64))
    growth_s: float = _of(60.0, 3.0)
    gemm_size: int = _of(2048, 256)
    replay_window_s: float = _of(1.5, 0.1)
    replay_sequences: int = _of(1024, 128)
    replay_rounds: int = _of(12, 2)  # of requests to a shard
    replay_transitions: int = _of(1_000_000, 4000)
    replay_batches: Sequence[int] = _of((16, 32, 64, 128, 256), (16,))
    replay_sizes: Sequence[int] = _of((1, 10, 100, 500, 2000, 10000), (1, 100))
    peers: Path | None = None  # folder of tools/peers/install.sh
    peer_rounds: int = _of(40, 2)  # of requests to a shard
    peer_seconds: float = _of(5.0, 0.5)  # of each way into and out of Reverb
    baseline_widths: Sequence[int] = _of((1, 2, 4), (1,))
    gossip_learners: Sequence[int] = _of((2, 4), (2,))
    gossip_window_s: float = _of(15.0, 2.0)
    cpu_watts: float = 2.2  # of a busy vCPU, where nothing counts: 280 W of 128 threads
    gossip_messages: int = _of(100, 3)
    gossip_tasks: Sequence[str] = _of(("CartPole", "Catch"), ("CartPole",))
    gossip_simulators: Sequence[int] = _of((16, 32, 64), (16, 32))
    gossip_seeds: int = _of(10, 1)
    gossip_frames: int | None = _of(None, 3_000)  # of a run; None: as many as its task takes


def make_plan(folder: Path, is_quick: bool, **chosen: Any) -> Plan:
    """Make the plan of a benchmark.

    Args:
        folder: For logs, sockets and run directories.
        is_quick: Every measurement once, for a moment and small: to see that it works.
        chosen: Settings that are neither the full ones nor the quick ones.
    """
    quick = {one.name: one.metadata["quick"] for one in fields(Plan) if one.metadata}
    return Plan(folder, **{**(quick if is_quick else {}), **chosen})


def write_pong(plan: Plan, name: str, environments: int | None = None, **learner: object) -> str:
    """Write an experiment of Pong: the defaults of the schema but for the plan's; return its path.

    Args:
        plan: Its sizes are the experiment's.
        name: Of the file.
        environments: Of a group; None takes the plan's.
        learner: More settings of the section `learner`, as YAML.
    """
    extra = "".join(f"\n  {key}: {value}" for key, value in learner.items())
    envs_per_group = environments or plan.environments
    path = plan.folder / f"{name}.yaml"
    path.write_text(f"""\
name: bench
environment: {{id: "{PONG}"}}
actor: {{envs_per_group: {envs_per_group}, threads: {plan.actor_threads}}}
learner:
  batch_size: {plan.batch_size}
  unroll_length: {plan.unroll_length}
  watchdog_timeout_s: 100000
  notice_interval_s: 100000{extra}
evaluation: {{at_end: false}}
""")
    return str(path)
