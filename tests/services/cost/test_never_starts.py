"""What is paid for and never starts: fatal exit codes, no node, no image."""

from __future__ import annotations

from typing import Any

import pytest

from seedbed.services.cost.last_resort import hold_at_zero
from tests.services.cost.test_meter import Scene
from tests.services.cost.test_usage import thing

AT_ZERO = {"actor": 0, "replay": 0, "learner": 0}
BEFORE = {"actor": 2, "replay": 2, "learner": 1}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


def ended(code: int, text: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": text}}


def member(
    component: str, node: str | None = "n", state: Any = None, last: Any = None, restarts: int = 0
) -> Any:
    status = {
        "name": component, "ready": False, "image": "i", "imageID": "i", "restartCount": restarts,
        "state": state or {"running": {}}, "lastState": last or {},
    }  # fmt: skip
    labels = {"app.kubernetes.io/component": component}
    return thing("V1Pod", {
        "metadata": {"name": f"pong-{component}-0", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": component, "resources": {}}]},
        "status": {"phase": "Running", "containerStatuses": [status] if node else []},
    })  # fmt: skip


def scene_with(*pods: Any, pending_s: float = 3600) -> Scene:
    scene = Scene()
    scene.goal = scene.goal._replace(pending_s=pending_s)
    scene.meter = scene.new()
    scene.cluster.items = list(pods)
    scene.meter.reconcile()
    return scene


SAID = (
    "seedbed: resume refused: lr 0.1 -> 0.2\nthree ways on\nseedbed: exit code 23 (RESUME_REFUSED)"
)


def test_a_learner_that_no_restart_mends_is_paused_with_its_reason() -> None:
    learner = member("learner", state=WAITING, last=ended(23, SAID), restarts=2)
    scene = scene_with(learner, member("actor"))
    assert scene.cluster.wanted == BEFORE, "a second restart may follow an upgrade"
    learner.status.container_statuses[0].restart_count = 3
    scene.meter.reconcile()
    assert scene.cluster.wanted == AT_ZERO
    assert scene.cluster.kept["paused"] == (
        "exit code 23 (RESUME_REFUSED) of pong-learner-0, after 3 restarts: seedbed: resume "
        "refused: lr 0.1 -> 0.2 three ways on"
    )
    scene.cluster.items = []
    del scene.cluster.kept["paused"]
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE


@pytest.mark.parametrize("code", [1, 20, 40, 42, 137, 143])
def test_what_a_restart_may_mend_goes_on(code: int) -> None:
    scene = scene_with(member("learner", state=WAITING, last=ended(code), restarts=9))
    assert scene.cluster.wanted == BEFORE


def test_a_learner_that_trains_after_fatal_ends_goes_on() -> None:
    scene = scene_with(member("learner", last=ended(22), restarts=5))
    assert scene.cluster.wanted == BEFORE


def test_a_run_directory_that_is_in_use_is_waited_for() -> None:
    """As that of a pod on a node that was lost: its claim expires."""
    used = (
        "seedbed: the run directory /runs/pong is in use by process 7 on x: stop it\nexit code 22"
    )
    learner = member("learner", state=WAITING, last=ended(22, used), restarts=9)
    assert scene_with(learner).cluster.wanted == BEFORE
    # For twenty minutes: what holds it then is another process that goes on.
    learner = member("learner", state=WAITING, last=ended(22, used), restarts=10)
    assert scene_with(learner).cluster.wanted != BEFORE


def test_actors_pause_a_release_if_none_works() -> None:
    broken = member("actor", state=WAITING, last=ended(11), restarts=4)
    scene = scene_with(member("learner"), broken, member("actor"))
    assert scene.cluster.wanted == BEFORE
    scene.cluster.items.pop()
    scene.meter.reconcile()
    assert scene.cluster.kept["paused"].startswith("exit code 11 (ENVIRONMENT) of pong-actor-0")


def test_a_shard_that_no_restart_mends_pauses_a_release() -> None:
    shard = member("replay", state=WAITING, last=ended(10), restarts=3)
    assert scene_with(member("learner"), shard).cluster.wanted == AT_ZERO


NO_NODE = member("learner", node=None)
NO_IMAGE = member("learner", state={"waiting": {"reason": "ImagePullBackOff"}})


@pytest.mark.parametrize(
    ("learner", "obstacle"),
    [
        (NO_NODE, "pong-learner-0 has no node"),
        (NO_IMAGE, "pong-learner-0 waits: ImagePullBackOff"),
        (None, "there is no pod"),
    ],
)
def test_actors_wait_at_zero_for_a_learner_and_come_back(learner: Any, obstacle: str) -> None:
    pods = [learner] if learner is not None else []
    scene = scene_with(*pods, member("actor"))
    scene.hours(0.99)
    assert scene.cluster.wanted == BEFORE
    scene.hours(0.02)
    assert scene.cluster.wanted == {"actor": 0, "replay": 2, "learner": 1}
    assert scene.cluster.kept["waiting"] == (
        f"stop.pending_s: no learner has started for 3636 s of 3600, {obstacle}"
    )
    scene.meter = scene.new()  # a meter that was restarted meanwhile
    scene.hours(5)
    assert scene.cluster.wanted["actor"] == 0
    scene.cluster.items = [member("learner")]
    scene.meter.reconcile()
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE
    assert not scene.cluster.kept.keys() & {"waiting", "resumeReplicas", "paused"}


def test_pods_are_looked_at_once_in_each_round() -> None:
    """A look waits a second for changes."""
    scene, looks = scene_with(member("learner")), []
    look = scene.cluster.pods

    def counted() -> list[Any]:
        looks.append(1)
        return look()

    scene.cluster.pods = counted  # type: ignore[method-assign]
    scene.meter.reconcile()
    assert len(looks) == 1


def test_a_learner_at_zero_is_not_waited_for() -> None:
    scene = scene_with(member("actor"))
    scene.cluster.wanted["learner"] = 0
    scene.hours(50)
    assert scene.cluster.wanted["actor"] == 2


def test_nothing_waits_where_it_is_off() -> None:
    scene = scene_with(NO_NODE, member("actor"), pending_s=0)
    scene.hours(50)
    assert scene.cluster.wanted == BEFORE


def test_a_pause_ends_the_wait() -> None:
    scene = scene_with(NO_NODE)
    scene.hours(1.1)
    scene.goal = scene.goal._replace(paused=True)
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == AT_ZERO
    assert "waiting" not in scene.cluster.kept
    scene.goal = scene.goal._replace(paused=False)
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE


def test_the_last_resort_tells_its_last_success() -> None:
    scene = scene_with(member("learner"))
    assert scene.meter.last_resort_s == 1000.0, "the begin of the meter"
    hold_at_zero(scene.cluster, 0.0, "goal", lambda: 5000.0)  # type: ignore[arg-type]
    scene.meter.reconcile()
    assert scene.meter.last_resort_s == 5000.0
