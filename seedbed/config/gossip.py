"""The section `learners`: several of them, and what they exchange."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seedbed.config.section import NonNegative, Positive, Section

Edge = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Weights(Section):
    """A graph by its mixing matrix."""

    weights: list[list[NonNegative]] = Field(
        description="Row i is how learner i mixes: the weight of its own parameters in column i, "
        "of those of learner j in column j. Rows sum to 1."
    )


GRAPHS = ("ring", "exponential", "complete")
Graph = Literal["ring", "exponential", "complete"] | list[Edge] | Weights


class Gossip(Section):
    """Several learners, each with its own actors (Assran et al. 2019, GALA)."""

    replicas: Positive = Field(
        1, description="Learners; `seedbed train --learners N` sets it. One is no exchange at all."
    )
    topology: Literal["gossip", "allreduce"] = Field(
        "gossip",
        description="What they exchange. `gossip`: parameters, asynchronously, with the peers of "
        "`graphs`. `allreduce`: every update is made of everybody's gradients, so all wait for "
        "the slowest.",
    )
    graphs: list[Graph] = Field(
        default=["ring"],
        min_length=1,
        description="Who sends to whom: `ring` (directed), `exponential` (to the 1st, 2nd, 4th ... "
        "next), `complete`, a list of edges [from, to], or `weights`, a mixing matrix. Several are "
        "taken in turn, one a local iteration.",
    )
    connectivity_window: Annotated[int, Field(ge=0)] = Field(
        0,
        description="B: any B graphs in a row lead from every learner to every other; 0 finds the "
        "smallest.",
    )
    staleness: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="τ: local iterations without a message from an in-peer after which a learner "
        "waits for it. Without it, it never waits.",
    )
    deadline_s: Annotated[float, Field(gt=0)] = Field(
        30.0,
        description="Seconds without progress after which a peer counts as dead, and the graph "
        "closes around it.",
    )
    addresses: list[str] = Field(
        default=[],
        description="Where the learners listen for each other, by rank; `seedbed train` and the "
        "chart set them.",
    )
    distance_every: Annotated[int, Field(ge=0)] = Field(
        100, description="Local iterations between two measurements of distances; 0 is none."
    )
    snapshot_every_s: NonNegative = Field(
        30.0,
        description="Seconds between the snapshots of parameters from which `seedbed analyze` "
        "knows the true distances; at most 200 are kept, evenly spread. 0 is none.",
    )
    gradients_every: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Local iterations between two gradients that are kept for `seedbed analyze`'s "
        "similarities; 0 is none.",
    )
    evaluation: Literal["consensus", "best"] = Field(
        "consensus",
        description="What the last evaluation of `seedbed train` plays: the average of the "
        "learners' parameters, or the learner with the best mean return.",
    )

    @model_validator(mode="after")
    def _addresses_are_theirs(self) -> Gossip:
        if self.addresses and len(self.addresses) != self.replicas:
            raise ValueError(
                f"gossip.addresses has {len(self.addresses)} addresses, and gossip.replicas is "
                f"{self.replicas}: each learner has one"
            )
        return self
