"""From an experiment to a learner's exchange with its peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.config import Experiment
from seedbed.gossip.allreduce import AllReduce
from seedbed.gossip.exchange import ParameterExchange
from seedbed.gossip.gossip import GossipExchange
from seedbed.gossip.layout import Layout
from seedbed.gossip.membership import Membership, PeerStatus
from seedbed.gossip.outbox import Outbox
from seedbed.gossip.peers import Peers
from seedbed.gossip.records import Records
from seedbed.gossip.topology import make_topology
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.telemetry import Telemetry

if TYPE_CHECKING:
    from seedbed.services.learner.components import LearnerComponents
    from seedbed.services.learner.training.thread import TrainingThread


def make_membership(experiment: Experiment, rank: int) -> Membership | None:
    """The learners of an experiment; None where there is one.

    Raises:
        SeedbedError: CONFIG: there is no such rank, nobody knows where they are, or the graphs
            are wrong.
    """
    settings = experiment.gossip
    if rank >= settings.replicas:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"rank {rank}: gossip.replicas is {settings.replicas}, so the ranks are 0 to "
            f"{settings.replicas - 1}; a learner more is a change of gossip.replicas for all "
            f"of them",
        )
    if settings.replicas == 1:
        return None
    if not settings.addresses:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"gossip.replicas is {settings.replicas} and gossip.addresses is empty: `seedbed train "
            "--learners N` and the chart set it; by hand, give each rank a host:port",
        )
    make_topology(settings)  # or refuse it now
    return Membership(rank, settings.replicas, settings.deadline_s, bool(experiment.cost.meter))


def make_exchange(
    experiment: Experiment,
    members: Membership,
    built: LearnerComponents,
    training: TrainingThread,
    telemetry: Telemetry,
    threads: Threads,
    folder: Path,
    tls: Tls | None,
) -> ParameterExchange:
    """Make the exchange; `start` meets the peers.

    Args:
        folder: where gossip is recorded.
    """
    settings, numbers = experiment.gossip, telemetry.gossip
    names, shapes = zip(*built.trainer.layout(), strict=True)
    layout = Layout(names, shapes)
    iteration: Callable[[], int] = lambda: telemetry.counters.updates  # noqa: E731

    def beat() -> PeerStatus:
        return _beat(experiment, members, telemetry, iteration())

    peers = Peers(experiment, members, layout, threads, tls, beat, training.request_state)
    numbers.peers = numbers.alive = settings.replicas
    if settings.topology == "allreduce":
        kept = Records(folder, 0, settings.replicas) if settings.gradients_every else None
        return AllReduce(
            settings, built.trainer, built.backend, layout, peers, telemetry.counters, numbers,
            threads.stopping, lambda: training.give_states(built), kept,
        )  # fmt: skip
    records = Records(folder, settings.snapshot_every_s, settings.replicas)
    outbox = Outbox(
        members.rank, built.backend, layout, peers, records, numbers, settings.distance_every
    )
    gossip = GossipExchange(
        settings, make_topology(settings), built.trainer, layout, peers, outbox, records, numbers,
        threads,
    )  # fmt: skip
    iteration = lambda: gossip.iteration  # noqa: E731
    return gossip


def _beat(
    experiment: Experiment, members: Membership, telemetry: Telemetry, iteration: int
) -> PeerStatus:
    counters = telemetry.counters
    # Everybody's share of the episodes of stop.mean_return.
    returns = telemetry.recent_returns.values(members.share(experiment.stop.mean_return_episodes))
    return PeerStatus(
        iteration=iteration,
        updates=counters.updates,
        env_frames=counters.env_frames,
        seconds=counters.seconds,
        dollars=counters.dollars,
        return_sum=float(returns.sum()),
        return_count=int(returns.size),
        over=telemetry.over or "",
        waiting=bool(telemetry.gossip.waiting),
    )
