"""What a release installs, and what it costs an hour, from the rendered chart."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import columns
from seedbed.runtime.install import how_to_install

_KINDS = ("StatefulSet", "JobSet", "Deployment")
# Reason of a pause by the chart's value, as the meter writes it.
BY_VALUE = "value"


class ApiObject(dict[str, Any]):
    """A mapping of the Kubernetes API, whose keys are attributes too, as its client names them."""

    def __getattr__(self, name: str) -> Any:
        """Return the value of the key in camel case; None where there is none."""
        if name.startswith("__"):
            raise AttributeError(name)
        return _attributes(self.get(re.sub(r"_(\w)", lambda found: found[1].upper(), name)))


def _attributes(value: Any) -> Any:
    if isinstance(value, dict):
        return ApiObject(value)
    return [_attributes(item) for item in value] if isinstance(value, list) else value


def objects_of(manifest: str) -> list[ApiObject]:
    """Return the objects of a rendered chart."""
    return [ApiObject(item) for item in yaml.safe_load_all(manifest) if item]


def workloads(objects: list[ApiObject]) -> Iterator[ApiObject]:
    """Yield what makes pods, in the order in which it starts."""
    yield from (item for kind in _KINDS for item in objects if item["kind"] == kind)


def replicas_of(workload: ApiObject) -> int:
    """Return the pods of a workload."""
    spec = workload["spec"]
    if workload["kind"] == "JobSet":
        hosts = spec["replicatedJobs"][0]["template"]["spec"]["parallelism"]
        return 0 if spec.get("suspend") else int(hosts)
    return int(spec.get("replicas", 1))


def template_of(workload: ApiObject) -> ApiObject:
    """Return the template of a workload's pods."""
    spec = workload["spec"]
    if workload["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    return ApiObject(spec["template"])


def first_pod(workload: ApiObject) -> str:
    """Return what names the first pod of a learner to kubectl."""
    name = workload["metadata"]["name"]
    return f"job/{name}-host-0" if workload["kind"] == "JobSet" else f"{name}-0"


def run_directory_of(learner: ApiObject) -> str:
    """Return the run directory of a learner's first pod, in that pod.

    Args:
        learner: Its workload.
    """
    return learner_option(learner, "--run-dir=")


def learner_option(learner: ApiObject, option: str, rank: int = 0) -> str:
    """Return what an option of a learner's command line gives; empty without it.

    Args:
        learner: Its workload.
        option: The option with its equals sign.
        rank: Rank of the learner, of several in one workload.
    """
    found = (x for x in _arguments(learner, "learner") if x.startswith(option))
    return next(found, "").removeprefix(option).replace("$(SEEDBED_RANK)", str(rank))


def _arguments(workload: ApiObject, container: str) -> list[str]:
    """Return the arguments of a container of a workload."""
    containers = template_of(workload)["spec"]["containers"]
    return [
        text for each in containers if each["name"] == container for text in each.get("args", [])
    ]


def cap_of(objects: list[ApiObject]) -> float:
    """Return the bill in US dollars at which a release's own meter ends it; 0 is none."""
    meter = workload_of(objects, "cost")
    given = _arguments(meter, "cost") if meter is not None else []
    option = "--budget="
    return next((float(x.removeprefix(option)) for x in given if x.startswith(option)), 0.0)


def state_of(objects: Iterable[ApiObject], release: str) -> dict[str, str] | None:
    """Return what the cost meter keeps of a release; None without its ConfigMap.

    Args:
        objects: Of the release.
        release: Name of its objects.
    """
    name = f"{release}-state"
    found = (x for x in objects if (x["kind"], x["metadata"]["name"]) == ("ConfigMap", name))
    return next((dict(item.get("data") or {}) for item in found), None)


def hold_of(objects: list[ApiObject], release: str) -> tuple[str, str] | None:
    """Return what holds a release at zero; None where it trains, or is about to.

    An upgrade with other stop conditions takes an end back, and one without the value `paused` that
    value's pause. The state tells of it some seconds later.

    Args:
        objects: Of the release.
        release: Name of its objects.

    Returns:
        `finished` or `paused`, and the reason.
    """
    state, meter = state_of(objects, release) or {}, workload_of(objects, "cost")
    given = _arguments(meter, "cost") if meter is not None else []
    goals = {text.removeprefix("--goal=") for text in given if text.startswith("--goal=")}
    is_same = not goals or state.get("goal", *goals) in goals
    if is_same and (finished := state.get("finished")):
        return "finished", finished
    by_value = "--paused" in given
    paused = state.get("paused", BY_VALUE if by_value else "")
    if paused and (paused != BY_VALUE or by_value or meter is None):
        return "paused", paused
    return None


def helm_release(item: ApiObject) -> str:
    """Return what Helm calls the release of an object; empty where Helm has not applied it."""
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get("meta.helm.sh/release-name", ""))


def made_later(objects: list[ApiObject]) -> frozenset[str]:
    """Return the names of Secrets that the meter or cert-manager makes for a release."""
    options = ("--auth-secret=", "--owns=")
    return frozenset(
        arg.partition("=")[2]
        for item in workloads(objects)
        for container in template_of(item)["spec"]["containers"]
        for arg in container.get("args", [])
        if arg.startswith(options)
    )


def plan(objects: list[ApiObject]) -> list[str]:
    """Return a line for each workload, with dollars an hour, and one for their sum."""
    prices = _PriceTags(objects)
    rows = []
    for item in workloads(objects):
        count = replicas_of(item)
        dollars = prices.add(item, count)
        (first, *_) = template_of(item)["spec"]["containers"]
        cells = [f"  {count} x", item["metadata"]["name"], _asked(item), first["image"]]
        if dollars is not None:
            cells[3:3] = [f"${dollars:.3f} an hour"]
        rows.append(cells)
    return [*columns(rows, "<" * len(rows[0])).splitlines(), prices.sentence()]


class Rates(NamedTuple):
    """US dollars an hour.

    Attributes:
        dollars: Of all pods with their volumes.
        volumes: Of the volumes alone, which stay when the pods are gone.
    """

    dollars: float
    volumes: float


def rates(objects: list[ApiObject]) -> Rates | None:
    """Return what the pods and volumes of a release cost; None where prices are not known."""
    prices, volumes = _PriceTags(objects), 0.0
    dollars = [prices.add(item, replicas_of(item)) for item in workloads(objects)]
    known = [one for one in dollars if one is not None]
    if len(known) < len(dollars):
        return None
    for item in workloads(objects):
        volumes += replicas_of(item) * prices.volumes(item)
    return Rates(sum(known), volumes)


def _asked(workload: ApiObject) -> str:
    """Return the requests of a workload's pod in words."""
    words = []
    for container in template_of(workload)["spec"]["containers"]:
        asked = container["resources"].get("requests", {})
        words += [f"{amount} {name}" for name, amount in asked.items()]
    return ", ".join(words)


class _PriceTags:
    """Prices of pods by the table of the cost meter; unknown where its libraries are missing."""

    def __init__(self, objects: list[ApiObject]) -> None:
        try:
            from seedbed.services.cost.prices import PriceList, Settings
        except ImportError:
            self._prices = None
            return
        tables = (x["data"]["prices.yaml"] for x in objects if "prices.yaml" in x.get("data", {}))
        self._prices = PriceList(Settings.model_validate(yaml.safe_load(next(tables, "{}"))))
        self._sums = [0.0, 0.0, 0.0]  # charged, and the bounds

    def add(self, workload: ApiObject, count: int) -> float | None:
        """Add pods of a workload, and return what is charged for them; None where unknown."""
        if self._prices is None:
            return None
        from seedbed.services.cost.usage import usage_of

        volumes = self.volumes(workload)
        costs = [x + volumes for x in self._prices.cost(usage_of(template_of(workload), None))]
        self._sums = [total + count * cost for total, cost in zip(self._sums, costs, strict=True)]
        return count * costs[0]

    def volumes(self, workload: ApiObject) -> float:
        """Return what is charged for the volumes of one pod; 0 where unknown."""
        if self._prices is None:
            return 0.0
        from seedbed.services.cost.charges import volume_rate

        claims = _attributes(workload.spec).volume_claim_templates or []
        return sum(volume_rate(claim, self._prices) for claim in claims)

    def sentence(self) -> str:
        if self._prices is None:
            return f"costs: unknown without the extra `kubernetes`: {how_to_install('kubernetes')}"
        charged, lower, upper = self._sums
        text = f"costs: ${charged:.3f} an hour, ${24 * charged:.2f} a day, volumes included"
        if upper > lower:
            text += f", between ${lower:.3f} and ${upper:.3f} by what nodes it gets (Spot, machine)"
        text += f", by {self._prices.name}"
        if self._prices.unknown:
            missing = ", ".join(sorted(self._prices.unknown))
            text += f"; no row for {missing}, so the dearest of its kind is taken"
        return text + "; without traffic and the cluster's own fee"


def workload_of(objects: list[ApiObject], component: str) -> ApiObject | None:
    """Return the workload of a component; None where the chart renders none."""
    label = "app.kubernetes.io/component"
    found = (x for x in workloads(objects) if x["metadata"]["labels"].get(label) == component)
    return next(found, None)


def only(objects: list[ApiObject], component: str) -> ApiObject:
    """Return the workload of a component.

    Raises:
        SeedbedError: DEPLOY, the chart renders none.
    """
    if (found := workload_of(objects, component)) is not None:
        return found
    raise SeedbedError(ExitCode.DEPLOY, f"the chart renders no {component}: give Seedbed's --chart")
