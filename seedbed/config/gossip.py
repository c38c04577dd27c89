"""Section `gossip`: several learners, and what they exchange."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seedbed.settings import FREE, RESULT, NonNegative, Positive, Section

Edge = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Weights(Section):
    """Graph given by its mixing matrix."""

    weights: list[list[NonNegative]]
    """Mixing matrix: row i holds the weights with which learner i mixes, that of learner j's
    parameters in column j. Each row sums to 1, with a weight above 0 in column i.
    """


Graph = Literal["ring", "exponential", "complete"] | list[Edge] | Weights


class Gossip(Section):
    """Learners that train one policy, each with its own actors (GALA, Assran et al. 2019)."""

    replicas: Annotated[Positive, RESULT] = 1
    """Number of learners; `seedbed train --learners N` sets it. A single learner exchanges nothing.
    """
    topology: Annotated[Literal["gossip", "allreduce", "hogwild"], RESULT] = "gossip"
    """Kind of exchange. `gossip`: parameters, asynchronously, with the peers of `graphs`.
    `allreduce`: every update uses the gradients of all learners, so all of them wait for the
    slowest one. `hogwild`: gradients of each learner, asynchronously, onto one shared copy of
    learner 0 (A3C, Mnih et al. 2016), for agents without replay.
    """
    graphs: Annotated[list[Graph], RESULT] = Field(default=["ring"], min_length=1)
    """Graphs of the learners: `ring` (directed), `exponential` (each learner sends to the next one,
    the 2nd, the 4th ... after it), `complete`, a list of edges [from, to], or `weights`, a mixing
    matrix. Several graphs take turns, one a local iteration.
    """
    connectivity_window: Annotated[int, RESULT, Field(ge=0)] = 0
    """Connectivity window B: any B graphs in a row lead from every learner to every other. 0 takes
    the smallest possible one.
    """
    staleness: Annotated[Annotated[int, Field(ge=0)] | None, RESULT] = None
    """Staleness τ: local iterations without a message of an in-peer after which a learner waits for
    that peer. If null, a learner never waits.
    """
    max_norm_ratio: Annotated[float, RESULT, Field(ge=1)] = 100.0
    """Largest ratio of the 2-norms of a peer's parameters and this learner's, in both directions; a
    norm below 1 counts as 1. Parameters beyond it are refused, and the graph closes around the peer
    until it sends others.
    """
    deadline_s: Annotated[float, FREE, Field(gt=0)] = 30.0
    """Seconds without progress after which a peer no longer counts as alive, and the graphs close
    around it.
    """
    addresses: Annotated[list[str], FREE] = Field(default=[])
    """Addresses at which the learners listen for each other, by rank; `seedbed train` and the chart
    set them.
    """
    distance_every: Annotated[int, FREE, Field(ge=0)] = 100
    """Mixings between two measurements of the distance to the in-peers; 0 measures none."""
    snapshot_every_s: Annotated[NonNegative, FREE] = 30.0
    """Seconds between two snapshots of the parameters, from which `seedbed analyze` computes the
    true distances. At most 200 snapshots are kept, evenly spread; 0 keeps none.
    """
    gradients_every: Annotated[int, FREE, Field(ge=0)] = 0
    """Local iterations between two gradients that are kept, which `seedbed analyze` compares; 0
    keeps none.
    """
    evaluation: Annotated[Literal["consensus", "best"], FREE] = "consensus"
    """Policy of the last evaluation of `seedbed train`: the average of all learners' parameters, or
    the learner with the best mean return.
    """

    @model_validator(mode="after")
    def _check_addresses(self) -> "Gossip":
        if self.addresses and len(self.addresses) != self.replicas:
            raise ValueError(
                f"gossip.addresses has {len(self.addresses)} addresses, and gossip.replicas is "
                f"{self.replicas}: each learner has one"
            )
        return self
