"""Volumes and traffic between zones, and the bill by component and tier."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client import generate_latest

from seedbed.services.cost.charges import present_charges
from seedbed.services.cost.claims import Claims
from seedbed.services.cost.ledger import Charge, Ledger
from seedbed.services.cost.prices import PriceList, Settings
from seedbed.services.cost.traffic import Traffic
from seedbed.services.cost.usage import Usage
from tests.services.cost.test_meter import FakeCluster, Scene
from tests.services.cost.test_usage import container, pod, thing

GIB = 2**30


def claim(
    component: str = "replay", storage_class: str = "standard-rwo", size: str = "64Gi"
) -> Any:
    return thing(
        "V1PersistentVolumeClaim",
        {
            "metadata": {"name": "c", "labels": {"app.kubernetes.io/component": component}},
            "spec": {
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"capacity": {"storage": size}},
        },
    )


def pods(*zones: str) -> list[tuple[Usage, float | None]]:
    """A learner in the first zone and actors in the others."""
    roles = ["learner"] + ["actor"] * (len(zones) - 1)
    return [
        (Usage(role, 0.0, 0.0, zone=zone, spot=False), None)
        for role, zone in zip(roles, zones, strict=True)
    ]


def rates(charges: list[Charge]) -> dict[tuple[str, str], float]:
    return {charge.part: charge.rate for charge in charges if charge.rate}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spoken(*counts: dict[str, Any], each_s: float = 10.0) -> Traffic:
    clock = Clock()
    traffic = Traffic(clock)
    for counted in counts:
        clock.now += each_s
        traffic.count(0, {"network_bytes": counted})
    return traffic


# 50 GB an hour, which 8,000 Atari frames a second are.
FAST = ({"actor received": 0, "actor sent": 0}, {"actor received": 140e6, "actor sent": 1e6})


def test_volumes_cost_by_class_and_size() -> None:
    ours = PriceList(Settings())
    charges = present_charges([], [claim(), claim("learner", size="10Gi")], spoken(), ours)
    assert rates(charges) == {
        ("replay", "volume"): pytest.approx(64 * 0.10 / 730),
        ("learner", "volume"): pytest.approx(10 * 0.10 / 730),
    }


def test_traffic_costs_where_it_crosses_zones() -> None:
    ours = PriceList(Settings())

    def of(*zones: str) -> dict[tuple[str, str], float]:
        return rates(present_charges(pods(*zones), [], spoken(*FAST), ours))

    every = 14.1e6 * 3600 / GIB * 0.01
    assert every == pytest.approx(0.47, rel=0.01)
    assert of("a", "a", "a") == {}
    assert of("a", "a", "b", "c") == {("actor", "traffic"): pytest.approx(every * 2 / 3)}
    assert of("a", "b") == {("actor", "traffic"): pytest.approx(every)}


def test_traffic_between_unknown_zones_is_an_upper_bound() -> None:
    charges = present_charges(pods("", ""), [], spoken(*FAST), PriceList(Settings()))
    (bounds,) = (charge.bounds for charge in charges if charge.part == ("actor", "traffic"))
    assert bounds == (0.0, pytest.approx(0.47, rel=0.01))


def test_what_learners_count_of_each_other_is_charged_once() -> None:
    counted = {"learner sent": 1e9, "learner received": 1e9, "shard sent": 5.0, "x": "many"}
    traffic = spoken({"learner sent": 0, "shard sent": 0, "actor sent": "many"}, counted)
    two = [Usage("learner", 0, 0, zone="a"), Usage("learner", 0, 0, zone="b")]
    (cost,) = (traffic.costs(two, 0.01)["learner"],)
    assert cost.charged == pytest.approx(1e8 * 3600 / GIB * 0.01)


def test_a_learner_that_began_anew_sends_nothing_until_its_second_answer() -> None:
    assert not spoken({"actor sent": 5e9}, {"actor sent": 10}).costs([], 0.01)
    assert not spoken({"actor sent": 5e9}).costs([], 0.01)
    silent = spoken(*FAST)
    silent._now = lambda: 1e6  # type: ignore[method-assign, assignment]
    assert not silent.costs([], 0.01)


def test_the_bill_by_component_and_tier_is_exported_and_kept() -> None:
    scene = Scene()
    spot = {"cloud.google.com/gke-spot": "true"}
    scene.cluster.items.append(pod([container({"cpu": "2"})], nodeSelector=spot))
    scene.cluster.volumes = [claim("learner", "standard-rwo", "73Gi")]
    scene.learner("training", frames=500_000_000)
    scene.meter.reconcile()
    scene.hours(2)
    scene.meter = scene.new()
    scene.meter.reconcile()
    text = generate_latest(scene.meter.registry).decode()
    for series in (
        'dollars_total{component="actor",tier="on-demand"} 2.0',
        'dollars_total{component="actor",tier="spot"} 1.0',
        'dollars_total{component="learner",tier="volume"} 0.02',
        'dollars_per_billion_frames{component="actor"} 6.0',
        'dollars_per_billion_frames{component="learner"} 0.04',
        # The first pod's tier is unknown: a quarter of the price on Spot.
        'dollars_bound{bound="lower"} 1.52',
        'dollars_bound{bound="upper"} 3.02',
        'dollars_per_hour_bound{bound="lower"} 0.76',
    ):
        assert f"seedbed_cost_{series}" in text
    assert scene.meter.dollars == pytest.approx(3.02)


def test_volumes_cost_on_after_the_end() -> None:
    scene = Scene()
    scene.cluster.volumes = [claim("replay", size="730Gi")]
    scene.learner("finished", over="stop.env_frames: 10 of 10")
    scene.meter.reconcile()
    scene.cluster.items, scene.statuses = [], [None]
    scene.meter.reconcile()
    spent = scene.meter.dollars
    scene.hours(10)
    assert scene.meter.dollars - spent == pytest.approx(10 * 0.10)


def test_an_upper_bound_may_be_infinite() -> None:
    ledger = Ledger({}, "a", 0.0)
    ledger.reprice([Charge(("learner", "spot"), 1.0, None, (0.5, math.inf))], 0.0, 1000.0)
    ledger.charge(0.0)
    assert ledger.present.upper == 0.0
    ledger.charge(3600.0)
    again = Ledger(
        {k: v for k, v in ledger.to_state(3600.0, 4600.0).items() if v is not None}, "a", 0.0
    )
    assert (again.present.lower, again.dollars, again.present.upper) == (0.5, 1.0, math.inf)


class Core:
    """An API server that lists claims, or refuses."""

    def __init__(self) -> None:
        self.listed, self.error = 0, False

    def list_namespaced_persistent_volume_claim(self, *args: Any, **kwargs: Any) -> Any:
        self.listed += 1
        if self.error:
            raise OSError("forbidden")
        return thing("V1PersistentVolumeClaimList", {"items": [claim().to_dict()]})


def test_claims_are_listed_each_minute_and_their_refusal_ends_no_bill() -> None:
    core, clock = Core(), Clock()
    claims = Claims(core, "rl", "app=x", clock)  # type: ignore[arg-type]
    assert len(claims.present()) == len(claims.present()) == 1
    assert core.listed == 1
    core.error, clock.now = True, 61.0
    assert len(claims.present()) == 1, "the last list counts"
    assert core.listed == 2


class Fleet(FakeCluster):
    """Actors that run as soon as they are wanted, each 100 frames a second up to 1,200."""

    def pods(self) -> list[Any]:
        learner = pod([container({"cpu": "2"})])
        learner.metadata.labels["app.kubernetes.io/component"] = "learner"
        actor = pod([container({"cpu": "0.1"})])
        actor.status.container_statuses = [
            thing("V1ContainerStatus", {"name": "actor", "ready": True, "restartCount": 0,
                                        "image": "i", "imageID": "i"})
        ]  # fmt: skip
        return [learner] * self.wanted["learner"] + [actor] * self.wanted["actor"]


@pytest.mark.slow
def test_the_meter_scales_actors_by_price_and_to_zero_at_the_end() -> None:
    scene = Scene(cluster=Fleet())
    scene.settings["autoscaler"] = {"enabled": True, "maxReplicas": 30}
    scene.meter = scene.new()
    frames = 0
    for _ in range(1500):
        frames += 5 * min(1200, 100 * scene.cluster.wanted["actor"])
        scene.learner("training", frames=frames)
        scene.hours(5 / 3600)
    assert scene.meter.autoscaler is not None
    assert scene.meter.autoscaler.holds
    assert scene.cluster.wanted["actor"] == 12, "the last that the learner serves"
    scene.learner("finished", over="stop.env_frames: 10 of 10", frames=frames)
    for _ in range(500):
        scene.hours(5 / 3600)
    assert scene.cluster.wanted["actor"] == 0


def test_without_it_the_meter_scales_no_actor_up() -> None:
    scene = Scene(cluster=Fleet())
    for hour in range(5):
        scene.learner("training", frames=hour * 1000)
        scene.hours(1)
    assert scene.cluster.calls == []
