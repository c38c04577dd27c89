"""The chart's values, typed: `values.schema.json` and the table of `README.md` come from here.

`python tools/chart_values.py` writes both; with `--check` it writes nothing and fails where a file
is not what this says. The tree `experiment:` is the schema of experiments itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from seedbed.config.schema import Experiment
from seedbed.services.cost.autoscaler import AutoscalerSettings
from seedbed.services.cost.price_table import Prices, Tier
from tools.generated import write_or_check

CHART = Path(__file__).resolve().parents[1] / "helm" / "seedbed"
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Quantity = (
    Annotated[
        str,
        Field(pattern=r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[KMGTPE]i|[munkMGTPE])?$"),
    ]
    | Annotated[float, Field(gt=0)]
)
Percent = Annotated[str, Field(pattern=r"^[0-9]+%$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Cidr = Annotated[
    str, Field(pattern=r"^([0-9.]+/[0-9]{1,2}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]{1,3})$")
]
Strings = dict[str, str]


class _Section(BaseModel):
    """Base of the sections. A docstring below a value is its description."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Images(_Section):
    """What the images of the release share."""

    registry: str = "localhost"
    """Where they are pulled from; a component's own comes first."""
    tag: str = ""
    """Default: the chart's appVersion."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """As in a pod."""
    pullSecrets: list[str] = []
    """Names of secrets."""


class Image(_Section):
    """Image of a component."""

    registry: str = ""
    """Default: `image.registry`."""
    repository: str = ""
    """Default: the component's, such as seedbed-actor."""
    tag: str = ""
    """Default: `image.tag`."""
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """sha256:...; it wins over a tag."""


class RoleNetworkPolicy(_Section):
    """The policy of one component."""

    extraEgress: list[dict[str, Any]] = []
    """More egress: NetworkPolicy egress rules, such as to W&B."""


class Amounts(_Section):
    """CPU and memory."""

    cpu: Quantity | None = None
    """Cores."""
    memory: Quantity | None = None
    """Bytes."""
    ephemeralStorage: Quantity | None = Field(None, alias="ephemeral-storage")
    """Bytes of local disk."""


class Resources(_Section):
    """What a container asks for, and its limits."""

    requests: Amounts = Field(default_factory=Amounts)
    """What the scheduler counts."""
    limits: Amounts = Field(default_factory=Amounts)
    """What is enforced."""


class ServiceAccount(_Section):
    """Service account of a component."""

    create: bool = True
    """Without it `name` must be there already."""
    name: str = ""
    """Default: the component's, such as RELEASE-learner."""
    annotations: Strings = {}
    """Workload identity, for `gs://`."""


class _Pod(_Section):
    priorityClassName: str = ""
    """As in a pod."""
    queueName: str = ""
    """Kueue: queue of this role, by default the release's `queueName`."""
    queuePriorityClass: str = ""
    """Kueue: its WorkloadPriorityClass, kueue.x-k8s.io/priority-class."""
    nodeSelector: Strings = {}
    """As in a pod."""
    tolerations: list[dict[str, Any]] = []
    """As in a pod."""
    affinity: dict[str, Any] = {}
    """As in a pod."""
    podAnnotations: Strings = {}
    """On the pods."""
    podLabels: Strings = {}
    """On the pods."""
    serviceAccount: ServiceAccount = Field(default_factory=ServiceAccount, description="")
    env: list[dict[str, Any]] = []
    """As in a container; a name of the chart's is replaced."""
    envFrom: list[dict[str, Any]] = []
    """As in a container."""
    extraVolumes: list[dict[str, Any]] = []
    """As in a pod, beside the chart's."""
    extraVolumeMounts: list[dict[str, Any]] = []
    """As in a container, beside the chart's."""
    extraContainers: list[dict[str, Any]] = []
    """As in a pod, beside the chart's."""
    initContainers: list[dict[str, Any]] = []
    """As in a pod."""
    podSpec: dict[str, Any] = {}
    """Fields of the pod's spec, merged over the chart's at the end."""
    shmSize: Quantity | Literal[""] = ""
    """/dev/shm in memory, which counts as the container's."""


class _Scheduled(_Pod):
    spot: bool = False
    """On Spot nodes (GKE's selector and toleration)."""
    computeClass: str = ""
    """cloud.google.com/compute-class."""
    networkPolicy: RoleNetworkPolicy = Field(default_factory=RoleNetworkPolicy, description="")


class AcceleratorRequest(_Section):
    """The learner's accelerator."""

    type: Literal["none", "gpu", "tpu"] = "none"
    """The fields of GKE follow."""
    name: str = ""
    """nvidia-l4, nvidia-h100-80gb, tpu-v6e-slice ..."""
    count: Positive = 1
    """A learner uses one. TPU: the chips of the host, which v4, v5p and 7x have four of."""
    topology: str = Field("", pattern=r"^(\d+(x\d+)+)?$")
    """tpu: 1x1, 2x2, 2x4 ..."""


class Persistence(_Section):
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
    """`gs://bucket/path`: checkpoints go there, whatever the type."""
    existingClaim: str = ""
    """pvc: a claim of yours in place of one of the release."""


class PodDisruptionBudget(_Section):
    """A PodDisruptionBudget."""

    enabled: bool = True
    """Whether there is one."""
    maxUnavailable: Count | Percent = 1
    """0 blocks node drains for ever."""


class LearnerValues(_Scheduled):
    """The learner's StatefulSet."""

    image: Image = Field(default_factory=Image, description="")
    replicas: Positive = 1
    """Learners, each with a volume. `helm upgrade` changes it, not `kubectl`."""
    topology: Literal["gossip", "allreduce"] = "gossip"
    """What several learners exchange: `gossip.topology`."""
    scaleGuard: bool = True
    """With several: refuse `kubectl scale` to another number, by a ValidatingAdmissionPolicy (of
    the whole cluster)."""
    accelerator: AcceleratorRequest = Field(default_factory=AcceleratorRequest, description="")
    resources: Resources = Field(default_factory=lambda: _resources("2", "4Gi"))
    """Of the container."""
    persistence: Persistence = Field(default_factory=Persistence, description="")
    run: str = Field("", pattern=r"^[a-z0-9-]*$")
    """The run's folder on the volume, by default the release's name. Another name begins a new run:
    the way out where a change cannot be resumed with."""
    initFrom: str = Field("", pattern=r"^[a-z0-9-]*$")
    """Begin with the parameters of another run on the volume, by its folder."""
    terminationGracePeriodSeconds: Positive = 120
    """The last checkpoint must fit in."""
    startupSeconds: Positive = 1200
    """Longest start, restoring and the first compile included."""
    podDisruptionBudget: PodDisruptionBudget = Field(
        default_factory=PodDisruptionBudget, description=""
    )
    safeToEvict: bool = False
    """Whether the cluster autoscaler may move it."""


class Autoscaling(_Section):
    """Who chooses the number of actors."""

    type: Literal["none", "hpa", "keda"] = "none"
    """With either of them `replicas` is left out."""
    minReplicas: Positive = 1
    """Of a release that is neither finished nor paused."""
    maxReplicas: Positive = 50
    """Most actors."""
    behavior: dict[str, Any] = {}
    """The pace, as in a HorizontalPodAutoscaler."""
    cpuUtilization: Annotated[int, Field(ge=1, le=100)] = 80
    """hpa: percent of the requests."""
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


class ActorValues(_Scheduled):
    """The actors' Deployment."""

    image: Image = Field(default_factory=Image, description="")
    replicas: Count | None = 2
    """`kubectl scale` changes it at any moment; null leaves the field out."""
    sidecar: Count = 0
    """Actors in each learner's pod, each with `resources`, over a unix socket; `replicas` may be
    0 then."""
    resources: Resources = Field(default_factory=lambda: _resources("1", "1Gi"))
    """Of the container."""
    terminationGracePeriodSeconds: Positive = 15
    """Spot gives no more; the drain takes at most 10."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling, description="")
    topologySpread: bool = False
    """Over zones. By default actors prefer the learner's zone, where traffic is free."""


class ReplayPersistence(_Section):
    """A shard's volume. Sequences outlive pods, scaling and the release in it."""

    size: Quantity = "64Gi"
    """It is full from the start: what a shard holds."""
    storageClass: str = ""
    """Default is the cluster's."""


class ReplayValues(_Scheduled):
    """The shards of a replay service, a StatefulSet, for agents that train from replay."""

    shards: Count = 0
    """With 1 or more the experiment's `learner.replay.storage` becomes `remote`."""
    sequences: Positive = 100_000
    """Of each shard. With the volume as it is; `learner.replay.capacity` becomes the sum."""
    persistence: ReplayPersistence = Field(default_factory=ReplayPersistence, description="")
    resources: Resources = Field(default_factory=lambda: _resources("1", "4Gi"))
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


class LastResort(_Section):
    """A CronJob that does what a dead cost meter leaves undone."""

    enabled: bool = False
    """Whether there is one."""
    schedule: str = "*/10 * * * *"
    """When the state is read: a finished or paused release whose meter is dead goes to zero, and
    one that has spent 5 % more than `stop.dollars`."""


class CostValues(_Pod):
    """The cost meter, which also ends the experiment."""

    enabled: bool = True
    """Without it nobody takes pods to zero at the end."""
    image: Image = Field(default_factory=Image, description="")
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
    lastResort: LastResort = Field(default_factory=LastResort, description="")
    autoscaler: AutoscalerSettings = Field(default_factory=AutoscalerSettings, description="")
    resources: Resources = Field(
        default_factory=lambda: Resources.model_validate(
            {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "192Mi"}}
        )
    )
    """Of the container."""


class MetricsValues(_Section):
    """How Prometheus finds the pods."""

    type: Literal["none", "annotations", "podMonitor", "podMonitoring"] = "annotations"
    """podMonitor: prometheus-operator; podMonitoring: Google Managed Prometheus."""
    interval: str = Field("15s", pattern=r"^(\d+(ms|[smh]))+$")
    """Between two scrapes."""
    labels: Strings = {}
    """On the monitor: kube-prometheus-stack ignores those without `release: STACK`."""


def _monitoring() -> list[dict[str, Any]]:
    names = ["monitoring", "gmp-system", "gke-gmp-system"]
    where = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}
    return [{"namespaceSelector": {"matchExpressions": [where]}}]


class ApiServer(_Section):
    """Where the API server is, for the cost meter."""

    cidr: Cidr | Literal[""] = ""
    """Its addresses; default: anywhere, of either family."""
    ports: list[Port] = Field(default_factory=lambda: [443, 6443])
    """Its ports."""


class EgressAllowRules(_Section):
    """What pods reach beside each other. DNS is port 53."""

    dnsKubeSystem: bool = True
    """DNS: pods of CoreDNS or kube-dns."""
    dnsNodeLocalCache: bool = True
    """DNS: NodeLocal DNSCache, 169.254.20.10."""
    dnsMetadataServer: bool = True
    """DNS: Cloud DNS, 169.254.169.254 and fd20:ce::254."""
    dnsPrivateRanges: bool = True
    """DNS: resolvers with private addresses, and GKE's range of Services."""
    bucket: bool = True
    """A learner with `gcsfuse`, or with checkpoints at a URL: the metadata server, and port 443
    anywhere."""


class NetworkPolicyValues(_Section):
    """One policy a component, a rule an edge; everything else is closed."""

    enabled: bool = True
    """Whether there are policies."""
    scrapers: list[dict[str, Any]] = Field(default_factory=_monitoring)
    """Who may scrape: NetworkPolicy peers. `[]` is nobody, `[{namespaceSelector: {}}]` every
    pod."""
    ipv6: bool = False
    """Addresses of IPv6 in the rules, too. Some network plugins take them on dual stack only."""
    egressAllowRules: EgressAllowRules = Field(default_factory=EgressAllowRules, description="")
    apiServer: ApiServer = Field(default_factory=ApiServer, description="")


class Issuer(_Section):
    """An issuer of cert-manager."""

    name: str = ""
    """Default: an authority of the release's own."""
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    """Its kind."""


class AuthValues(_Section):
    """Tokens for gRPC and /status."""

    enabled: bool = True
    """A token for each role; `docs/security.md`."""
    existingSecret: str = ""
    """Secret with the keys actor, learner, shard and observer, as `seedbed tokens` writes the
    files; default: a Job makes RELEASE-auth."""


class TlsValues(_Section):
    """mTLS on gRPC."""

    enabled: bool = False
    """Without a certificate nobody gets an action."""
    certManager: bool = True
    """cert-manager makes the certificates."""
    issuer: Issuer = Field(default_factory=Issuer, description="")
    learnerSecret: str = ""
    """Without cert-manager: tls.crt, tls.key, ca.crt."""
    actorSecret: str = ""
    """Likewise."""
    replaySecret: str = ""
    """Likewise, with `replay.shards`."""


class TestValues(_Section):
    """The pod of `helm test`, placed as the actors are."""

    resources: Resources = Field(
        default_factory=lambda: Resources.model_validate(
            {
                "requests": {"cpu": "100m", "memory": "256Mi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            }
        )
    )
    """Of each container."""


class Values(_Section):
    """All values."""

    experimentFile: str = ""
    """Text of an experiment's file, by `--set-file experimentFile=FILE`; default: Pong."""
    experiment: dict[str, Any] = {}
    """Keys over those of the file: docs/configuration.md."""
    image: Images = Field(default_factory=Images, description="")
    paused: bool = False
    """Take actors, learner and shards to zero; false brings back the numbers from before."""
    replicas: Literal["chart", "external"] = "chart"
    """`external` leaves `.spec.replicas` out of everything that is scaled, as GitOps needs."""
    nameOverride: str = ""
    """Objects are called RELEASE-NAME-learner and so on; it cannot change in a release."""
    fullnameOverride: str = ""
    """Objects are called NAME-learner and so on; it cannot change in a release."""
    extraLabels: Strings = {}
    """On everything, pods too."""
    extraObjects: list[dict[str, Any]] = []
    """More objects of the release, with templates in their text."""
    queueName: str = ""
    """Kueue: kueue.x-k8s.io/queue-name of every role that names none."""
    learner: LearnerValues = Field(default_factory=LearnerValues, description="")
    actor: ActorValues = Field(default_factory=ActorValues, description="")
    replay: ReplayValues = Field(default_factory=ReplayValues, description="")
    cost: CostValues = Field(default_factory=CostValues, description="")
    metrics: MetricsValues = Field(default_factory=MetricsValues, description="")
    networkPolicy: NetworkPolicyValues = Field(default_factory=NetworkPolicyValues, description="")
    auth: AuthValues = Field(default_factory=AuthValues, description="")
    tls: TlsValues = Field(default_factory=TlsValues, description="")
    test: TestValues = Field(default_factory=TestValues, description="")
    global_: dict[str, Any] = Field({}, alias="global")
    """Helm's own; not read."""


def _resources(cpu: str, memory: str) -> Resources:
    return Resources.model_validate(
        {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    )


def schema() -> dict[str, Any]:
    """`values.schema.json`, in the draft that Helm 3 knows."""
    # A docstring of several lines is one line there.
    values = json.loads(json.dumps(Values.model_json_schema()).replace(r"\n", " "))
    experiment = Experiment.model_json_schema()
    definitions = values.pop("$defs") | experiment.pop("$defs")
    # Keys that the file has, and the name, which is the release's.
    del experiment["required"], definitions["Environment"]["required"]
    definitions["Experiment"] = experiment
    values["properties"]["experiment"] = {"$ref": "#/$defs/Experiment"}
    _allow_renamed(values, definitions)
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **values,
        "$defs": definitions,
    }
    return _plain(whole)  # type: ignore[no-any-return]


def _allow_renamed(values: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Let values of older charts pass, whose new names a template says."""
    for path in yaml.safe_load((CHART / "renamed-values.yaml").read_text()):
        *sections, key = path.split(".")
        node = values
        for section in sections:
            node = definitions[node["properties"][section]["$ref"].rpartition("/")[2]]
        node["properties"][key] = {}


def _plain(node: Any, of_properties: bool = False) -> Any:
    """Without titles and defaults: the first are noise, the second are in values.yaml."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    drop = set() if of_properties else {"title", "default"}
    return {
        key: _plain(value, of_properties=key in ("properties", "$defs"))
        for key, value in node.items()
        if key not in drop
    }


def rows(model: type[BaseModel] = Values, prefix: str = "") -> list[tuple[str, str, str]]:
    """Path, default and meaning of each value, in the order of values.yaml's sections."""
    found = []
    default = model()
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        value = getattr(default, name)
        if isinstance(value, BaseModel) and not isinstance(value, Resources | Prices):
            found += rows(type(value), f"{path}.")
            continue
        if isinstance(value, BaseModel):
            value = value.model_dump(exclude_none=True, by_alias=True)
        meaning = (field.description or "").replace("\n", " ")
        found.append((path, json.dumps(value), meaning))
    return found


HEAD = """\
# seedbed

One release is one experiment of Seedbed: a learner, or several (StatefulSet), actors (Deployment),
replay shards where they are asked for (StatefulSet), a cost meter, network policies. Helm 3 and
Helm 4, Kubernetes 1.33 and newer.

    helm install pong helm/seedbed --set-file experimentFile=experiments/pong-vtrace.yaml
    kubectl scale deployment/pong-actor --replicas=50
    helm test pong

With kube-prometheus-stack installed as `monitoring`:

    helm install pong helm/seedbed --set-file experimentFile=experiments/pong-vtrace.yaml \\
      --set metrics.type=podMonitor --set metrics.labels.release=monitoring

[docs/kubernetes.md](../../docs/kubernetes.md) says how an experiment lives, ends and goes on.

## Values

<!-- Generated by tools/chart_values.py. -->

| value | default | meaning |
|---|---|---|
"""


def readme() -> str:
    """`README.md` of the chart."""
    lines = []
    for path, default, meaning in rows():
        cell = default.replace("|", "\\|")
        lines.append(f"| `{path}` | `{cell}` | {meaning.replace('|', chr(92) + '|')} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write, or check."""
    wanted = {
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        CHART / "README.md": readme(),
    }
    return write_or_check(wanted, "tools/chart_values.py")


if __name__ == "__main__":
    sys.exit(main())
