"""The chart's values of each component: learner, actor, replay, cost."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from seedbed.services.cost.price_table import Prices, Tier
from tools.chart_types import (
    Count,
    Percent,
    Positive,
    Quantity,
    Resources,
    Role,
    RoleWithImage,
    Section,
    Strings,
    resources,
)


class AcceleratorRequest(Section):
    """The learner's accelerator."""

    type: Literal["none", "gpu", "tpu"] = "none"
    """The fields of GKE follow."""
    name: str = ""
    """nvidia-l4, nvidia-h100-80gb, tpu-v6e-slice ..."""
    count: Positive = 1
    """Of one host: GPUs of a whole machine, or the chips of a TPU host. JAX uses several,
    TensorFlow one."""
    topology: str = Field("", pattern=r"^(\d+(x\d+)+)?$")
    """tpu: 1x1, 2x2, 2x4 ...; a larger one has several `hosts`."""


class Persistence(Section):
    """Where the run directory with its checkpoints lies."""

    type: Literal["pvc", "gcsfuse", "none"] = "pvc"
    """A volume that outlives the release, a bucket that GKE mounts, or nothing."""
    size: Quantity = "10Gi"
    """pvc: its size."""
    storageClass: str = ""
    """pvc: default is the cluster's."""
    bucket: str = ""
    """gcsfuse: its name."""
    checkpoints: str = Field("", pattern=r"^(\w+://.+)?$")
    """`gs://bucket/path`: checkpoints go to `NAMESPACE/RELEASE/RUN` below it, whatever the type."""
    existingClaim: str = ""
    """pvc: a claim of yours in place of one of the release."""


class PodDisruptionBudget(Section):
    """A PodDisruptionBudget."""

    maxUnavailable: Count | Percent | Literal["none"] = 1
    """0 blocks node drains for ever; `none`: without one."""


class EvaluationValues(Section):
    """A container beside each learner that evaluates checkpoints (`seedbed evaluate --follow`), in
    place of `evaluation.every_frames`; the learner still makes the last evaluation."""

    enabled: bool = False
    """Whether there is one."""
    episodes: Positive = 200
    """Episodes that are played of each checkpoint."""
    everyFrames: Count = 0
    """Frames between two evaluations; 0: each newest checkpoint once the one before is done."""
    resources: Resources = Field(default_factory=lambda: resources("1", "512Mi", "2Gi"))
    """Of the container, beside the learner's."""


class LearnerValues(RoleWithImage):
    """The learner: a StatefulSet, or a JobSet of several hosts."""

    spot: bool = False
    """On Spot nodes (GKE's selector and toleration): checkpoints each minute, 15 seconds to end."""
    replicas: Positive = 1
    """Learners, each with a volume. `helm upgrade` changes it, not `kubectl`."""
    topology: Literal["gossip", "allreduce", "hogwild"] = "gossip"
    """What several learners exchange: `gossip.topology`."""
    hosts: Count = 0
    """Pods of one learner that train as one, each with `accelerator.count` devices of a node of its
    own. A JobSet restarts all as one: its controller must be there. Default: the experiment's
    learner.hosts."""
    scaleGuard: bool = True
    """With several: refuse `kubectl scale` to another number, by a ValidatingAdmissionPolicy (of
    the whole cluster)."""
    accelerator: AcceleratorRequest = Field(default_factory=AcceleratorRequest, description="")
    resources: Resources = Field(default_factory=lambda: resources("2", "1Gi", "4Gi"))
    """Of the container."""
    persistence: Persistence = Field(default_factory=Persistence, description="")
    evaluation: EvaluationValues = Field(default_factory=EvaluationValues, description="")
    run: str = Field("", pattern=r"^[a-z0-9-]*$")
    """The run's folder on the volume, by default the release's name. Another name begins a new run:
    the way out where a change cannot be resumed with."""
    acceptChange: str = Field("", pattern=r"^(c[0-9a-f]{7})?$")
    """Digest of the one change of settings with which the run resumes, as the refusal of `helm
    upgrade`, `seedbed deploy` or the learner names it. Left in the values it accepts no other."""
    initFrom: str = Field("", pattern=r"^[a-z0-9-]*$")
    """Begin with the parameters of another run on the volume, by its folder."""
    terminationGracePeriodSeconds: Positive = 120
    """The last checkpoint must fit in."""
    startupSeconds: Positive = 1200
    """Longest start, restoring and the first compile included."""
    podDisruptionBudget: PodDisruptionBudget = Field(
        default_factory=PodDisruptionBudget, description=""
    )


class Autoscaling(Section):
    """Who chooses the number of actors."""

    type: Literal["none", "keda", "price"] = "none"
    """keda: by how busy the learner is. price: the cost meter, by the frames of a dollar. Either
    takes the number over."""
    minReplicas: Positive = 1
    """Of a release that is neither finished nor paused."""
    maxReplicas: Positive = 50
    """Most actors."""
    behavior: dict[str, Any] = {}
    """keda: the pace, as in a HorizontalPodAutoscaler."""
    prometheus: str = "http://prometheus-operated.monitoring:9090"
    """keda: where the query goes."""
    authenticationRef: Strings = {}
    """keda: name and kind of a TriggerAuthentication, such as Managed Prometheus needs."""
    authModes: str = ""
    """keda: as in its prometheus trigger."""
    cooldownSeconds: Count = 300
    """keda: from the end to zero actors."""
    inferenceBusyFraction: Annotated[float, Field(gt=0, le=1)] = 0.7
    """keda: how busy the learner's inference thread should be."""


class ActorValues(RoleWithImage):
    """The actors' Deployment."""

    spot: bool = False
    """On Spot nodes (GKE's selector and toleration)."""
    replicas: Count = 2
    """`kubectl scale` changes it at any moment."""
    sidecar: Count = 0
    """Actors in each learner's pod, each with `resources`, over a unix socket; `replicas` may be
    0 then."""
    resources: Resources = Field(default_factory=lambda: resources("1", "256Mi", "1Gi"))
    """Of the container."""
    terminationGracePeriodSeconds: Positive = 15
    """Spot gives no more; the drain takes at most 10."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling, description="")
    topologySpread: bool = False
    """Over zones. By default actors prefer the learner's zone, where traffic is free."""


class ReplayPersistence(Section):
    """A shard's volume. Sequences outlive pods, scaling and the release in it."""

    size: Quantity = "64Gi"
    """It is full from the start: what a shard holds."""
    storageClass: str = ""
    """Default is the cluster's."""


class ReplayValues(Role):
    """The shards of a replay service, a StatefulSet, for agents that train from replay."""

    spot: bool = False
    """On Spot nodes: a shard comes back with what it held."""
    shards: Count = 0
    """With 1 or more the experiment's `learner.replay.storage` becomes `remote`."""
    sequences: Positive = 100_000
    """Of each shard. With the volume as it is; `learner.replay.capacity` becomes the sum."""
    persistence: ReplayPersistence = Field(default_factory=ReplayPersistence, description="")
    resources: Resources = Field(default_factory=lambda: resources("1", "4Gi", "4Gi"))
    """Of the container. Memory beyond 1Gi keeps pages of the volume at hand."""
    terminationGracePeriodSeconds: Positive = 45
    """To write out what is cached; a kill -9 loses nothing either."""
    startupSeconds: Positive = 1800
    """Longest start: the checksums of a full volume are read."""
    podDisruptionBudget: PodDisruptionBudget = Field(
        default_factory=PodDisruptionBudget, description=""
    )
    topologySpread: bool = True
    """Over nodes, as far as possible."""


class CostValues(RoleWithImage):
    """The cost meter, which also ends the experiment."""

    enabled: bool = True
    """Without it nobody takes pods to zero at the end."""
    readNodes: bool = False
    """Read nodes for their machine family and tier: a ClusterRole."""
    priceTable: Literal["us-central1-aug-2026", "sep-2019"] = "us-central1-aug-2026"
    """The paper's Table 3 is `sep-2019`."""
    prices: Prices = Field(default_factory=Prices)
    """Rows of your own, over those of the table."""
    defaultFamily: str = "n2"
    """Machine family where it is not known."""
    defaultTier: Tier = "on-demand"
    """Where it is not known."""
    ttlSecondsAfterFinished: Count = 86_400
    """So long after the end meter and last resort are removed; 0: they stay."""
    resources: Resources = Field(default_factory=lambda: resources("20m", "128Mi", "256Mi"))
    """Of the container."""
