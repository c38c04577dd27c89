"""How long and how often to measure: the full benchmark, or a quick look at whether it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PONG = "atari:Pong"


@dataclass(frozen=True)
class Plan:
    """Settings of all measurements. `folder` is for logs, sockets and run directories."""

    folder: Path
    runs: int = 3
    window_s: float = 2.0  # of one side of an actor's or the wire's ratio
    warm_up_s: float = 0.5  # before each window
    actor_environments: tuple[int, ...] = (1, 8, 16, 32, 64)
    actor_threads: int = 2  # of each of an actor's two groups, as in pong-vtrace.yaml
    wire_environments: tuple[int, ...] = (1, 8, 32)
    wire_streams: tuple[int, ...] = (2, 128)
    networks: tuple[str, ...] = ("nature", "impala_shallow")
    system_warm_up_s: float = 8.0  # of a training run, after its first updates
    system_window_s: float = 12.0
    part_window_s: float = 2.5
    environments: int = 32
    batch_size: int = 32
    unroll_length: int = 20
    slots: tuple[int, int] = (64, 1024)
    growth_s: float = 60.0
    gemm_size: int = 2048
    replay_window_s: float = 1.5
    replay_sequences: int = 1024
    replay_rounds: int = 12  # of requests to a shard
    replay_transitions: int = 1_000_000
    replay_batches: tuple[int, ...] = (16, 32, 64, 128, 256)
    replay_sizes: tuple[int, ...] = (1, 10, 100, 500, 2000, 10000)
    gossip_learners: tuple[int, ...] = (2, 4)
    gossip_window_s: float = 15.0
    gossip_messages: int = 100
    gossip_tasks: tuple[str, ...] = ("CartPole", "Catch")
    gossip_simulators: tuple[int, ...] = (16, 32, 64)
    gossip_seeds: int = 10
    gossip_frames: int | None = None  # of a run; None: as many as its task takes


def quick(folder: Path, runs: int) -> Plan:
    """Every measurement once, for a moment and small: to see that it works."""
    return Plan(
        folder,
        runs=runs,
        window_s=0.4,
        warm_up_s=0.1,
        actor_environments=(2,),
        wire_environments=(2,),
        wire_streams=(2,),
        networks=("nature",),
        system_warm_up_s=0.0,
        system_window_s=1.0,
        part_window_s=0.4,
        environments=4,
        batch_size=4,
        unroll_length=5,
        slots=(8, 64),
        growth_s=3.0,
        gemm_size=256,
        replay_window_s=0.1,
        replay_sequences=128,
        replay_rounds=2,
        replay_transitions=4000,
        replay_batches=(16,),
        replay_sizes=(1, 100),
        gossip_learners=(2,),
        gossip_window_s=2.0,
        gossip_messages=3,
        gossip_tasks=("CartPole",),
        gossip_simulators=(16, 32),
        gossip_seeds=1,
        gossip_frames=3_000,
    )


def pong(plan: Plan, **learner: object) -> str:
    """An experiment of Pong, as YAML: the defaults of the schema but for what the plan says."""
    extra = "".join(f"\n  {key}: {value}" for key, value in learner.items())
    return f"""\
name: bench
environment: {{id: "{PONG}"}}
actor: {{envs_per_group: {plan.environments}, threads: {plan.actor_threads}}}
learner:
  batch_size: {plan.batch_size}
  unroll_length: {plan.unroll_length}
  watchdog_timeout_s: 100000
  notice_interval_s: 100000{extra}
evaluation: {{at_end: false}}
"""
