"""Factory of a learner's exchange with its peers."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seedbed.backends.trainer import Trainer
from seedbed.config import Experiment
from seedbed.gossip.allreduce import AllReduceExchange
from seedbed.gossip.exchange import LocalLearner, ParameterExchange
from seedbed.gossip.gossip_exchange import GossipExchange
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.hogwild import HogwildExchange
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.topology import make_topology
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import Credentials
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.services.learner.hosts.agreement import Agreement
from seedbed.services.learner.hosts.exchange import FirstHostParameters, HostsExchange
from seedbed.telemetry import Telemetry
from seedbed.v1.gossip_pb2 import Member

if TYPE_CHECKING:
    from seedbed.services.learner.components import LearnerComponents
    from seedbed.services.learner.training.thread import TrainingThread


def make_membership(
    experiment: Experiment, rank: int, known: Mapping[str, Any]
) -> Membership | None:
    """Return the learners of an experiment, or None if there is and was only one.

    Args:
        experiment: Section `gossip` says how many learners there are and where.
        rank: Rank of this learner.
        known: Learners of the checkpoint, as `Membership.to_json` returns them; {} without one.

    Raises:
        SeedbedError: CONFIG; the rank is out of range, addresses are missing, or the graphs are
            invalid.
    """
    settings = experiment.gossip
    if rank >= settings.replicas:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"rank {rank}: gossip.replicas is {settings.replicas}, so the ranks are 0 to "
            f"{settings.replicas - 1}: to add a learner, raise gossip.replicas for all of them",
        )
    whole_bill = bool(experiment.cost.meter)
    if settings.replicas == 1:
        return Membership(rank, 1, settings.deadline_s, whole_bill) if known else None
    if not settings.addresses:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"gossip.replicas is {settings.replicas} and gossip.addresses is empty: `seedbed train "
            "--learners N` and the chart set it; by hand, give each rank a host:port",
        )
    make_topology(settings)  # raises now, before anything listens
    return Membership(rank, settings.replicas, settings.deadline_s, whole_bill)


# Everything that a learner has and an exchange needs: 9 parameters.
def make_exchange(
    experiment: Experiment,
    membership: Membership | None,
    components: "LearnerComponents",
    training: "TrainingThread",
    telemetry: Telemetry,
    threads: Threads,
    folder: Path,
    credentials: Credentials,
    hosts: Agreement | None = None,
) -> ParameterExchange:
    """Make the exchange of a learner, without connecting to the peers yet.

    Args:
        experiment: Section `gossip` says what is exchanged.
        membership: Learners of the experiment; None on all hosts of a learner but the first.
        components: The trainer.
        training: Training thread, which answers requests for the whole state.
        telemetry: Receives the statistics of the exchange.
        threads: Threads of this learner.
        folder: Folder of the gossip log.
        credentials: Credentials of this process.
        hosts: Agreement with the other hosts of this learner; None without any.
    """
    names, shapes = zip(*components.trainer.layout(), strict=True)
    layout = ParameterLayout(names, shapes)
    if membership is None:
        assert hosts is not None
        return HostsExchange(components.backend, components.trainer, layout, hosts)
    parameters = FirstHostParameters(components.trainer)
    settings, stats = experiment.gossip, telemetry.gossip
    stats.begin(settings.replicas)
    learner = LocalLearner(
        cast(Trainer, parameters) if hosts is not None else components.trainer,
        layout,
        telemetry.counters,
        stats,
        threads,
        lambda: training.give_states(components),
    )
    episodes, is_gossip = experiment.stop.mean_return_episodes, settings.topology == "gossip"

    def heartbeat() -> Member:
        """Return the status of this learner for its peers."""
        counters = telemetry.whole_counters()
        return_sum, return_count = telemetry.whole_returns(membership.share(episodes))
        return Member(
            iteration=membership.iteration if is_gossip else counters.updates,
            updates=counters.updates,
            env_frames=counters.env_frames,
            seconds=counters.seconds,
            dollars=counters.dollars,
            return_sum=return_sum,
            return_count=return_count,
            over=telemetry.stop_condition or "",
            waiting=bool(stats.waiting),
        )

    transport = GossipTransport(
        experiment,
        membership,
        learner.layout,
        threads,
        credentials,
        heartbeat,
        training.request_state,
    )
    if settings.topology == "allreduce":
        log = GossipLog(folder, 0, settings.replicas) if settings.gradients_every else None
        return AllReduceExchange(settings, learner, transport, log)
    if settings.topology == "hogwild":
        log = GossipLog(folder, 0, settings.replicas) if settings.gradients_every else None
        return HogwildExchange(settings, learner, transport, log)
    every_s, every = settings.snapshot_every_s, settings.distance_every
    log = GossipLog(folder, every_s, settings.replicas, stats, every)
    exchange = GossipExchange(settings, learner, transport, log)
    if hosts is None:
        return exchange
    trainer = components.trainer
    return HostsExchange(components.backend, trainer, layout, hosts, exchange, parameters)
