"""What takes a release to zero, keeps it there, and brings it back: its end, a pause, idleness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from tests.e2e.release import CHART, Release, command, until, values
from tests.support.chart import merged

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

ROUNDS = 3  # of a loop that applies the rendered objects again and again


def at_zero(release: Release) -> bool:
    workloads = (f"deployment/{release.name}-actor", f"statefulset/{release.name}-learner")
    return not any(release.replicas(what) for what in workloads)


def has_left(release: Release) -> bool:
    return at_zero(release) and not release.pods("learner") and not release.pods("actor")


def meter_has_left(release: Release) -> bool:
    return not release.pods("cost") and not release.get("cronjobs")["items"]


def held(release: Release) -> bool:
    """Whether the meter has taken something back to zero."""
    meter = release.pods("cost")[0]["metadata"]["name"].removeprefix(f"{release.name}-")
    lines = (release.http(meter, 9092, "metrics") or "").splitlines()
    name = "seedbed_cost_held_at_zero_total"
    return any(line.startswith(name) and float(line.split()[-1]) for line in lines)


def test_the_end_holds_whoever_scales(namespace: str, tmp_path: Path) -> None:
    ends = Release("ends", namespace, tmp_path)
    stop = {"stop": {"env_frames": 1_500}, "evaluation": {"episodes": 4}}
    given = values(experiment=stop)
    ends.install(given)
    # The meter is killed in the middle: the bill goes on, and so does the end.
    ends.until(lambda: float(ends.state().get("dollars", 0)) > 0, "there is a bill")
    ends.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=cost", "--grace-period=0",
                 "--force")  # fmt: skip
    ends.until(lambda: ends.state().get("finished"), "it is finished")
    assert ends.state()["finished"].startswith("stop.env_frames")
    spent = float(ends.state()["dollars"])
    assert spent > 0
    ends.until(lambda: has_left(ends), "its pods are gone")
    # NOTES say so, and an upgrade starts nothing.
    assert "FINISHED: stop.env_frames" in ends.upgrade(given)
    assert at_zero(ends)
    # A person scales it up: back to zero.
    ends.scale("deployment/ends-actor", 2)
    ends.scale("statefulset/ends-learner", 1)
    ends.until(lambda: has_left(ends), "it is held at zero")
    assert held(ends)
    said = command("helm", "test", "ends", "-n", namespace, "--timeout", "2m", timeout_s=180)
    assert "Phase:" in said
    # A loop that knows nothing of the release's state applies what it renders, as Argo CD does.
    rendered = tmp_path / "rendered.yaml"
    template = command("helm", "template", "ends", str(CHART), "-n", namespace, "-f",
                       str(ends.folder / "ends.json"), "--set", "replicas=external",
                       "--no-hooks")  # fmt: skip
    rendered.write_text(template)
    for _ in range(ROUNDS):
        ends.kubectl("apply", "--server-side", "--field-manager=helm", "-f", str(rendered))
        assert at_zero(ends), "the field is left to the cluster"
        ends.kubectl("wait", "--for=jsonpath={.spec.replicas}=0", "statefulset/ends-learner")

    # Some time after the end nothing is left that runs, and the result stays.
    ends.upgrade(merged(given, {"cost": {"ttlSecondsAfterFinished": 1}}))
    ends.until(lambda: meter_has_left(ends), "the meter has left")
    assert ends.state()["finished"].startswith("stop.env_frames")
    assert float(ends.state()["dollars"]) >= spent
    assert "the cost meter has left" in ends.upgrade(
        merged(given, {"cost": {"ttlSecondsAfterFinished": 2}})
    )
    assert meter_has_left(ends)

    # Another run brings it back, has a bill and frames of its own, and none of the first one's.
    more = {"stop": {"env_frames": 10_000_000}, "evaluation": {"episodes": 4}}
    ends.upgrade(values(experiment=more, learner={"run": "second"}))
    ends.scale("statefulset/ends-learner", 1)
    ends.scale("deployment/ends-actor", 1)
    ends.trains()
    until(lambda: not ends.state().get("finished"), "it is not finished any more")
    assert ends.frames() < 10_000_000
    ends.uninstall()
    left = {item["metadata"]["name"] for item in ends.get("pods,jobs")["items"]}
    assert not {name for name in left if "test" in name}, "the test's pod is gone too"


def test_a_pause_comes_back_where_it_was(namespace: str, tmp_path: Path) -> None:
    naps = Release("naps", namespace, tmp_path)
    naps.install(values())
    naps.trains()
    naps.scale("deployment/naps-actor", 2)
    naps.until(lambda: naps.sessions(4), "two actors")
    frames = naps.frames()
    naps.upgrade(values(paused=True))
    naps.until(lambda: has_left(naps), "it is at zero")
    naps.until(lambda: naps.state().get("paused"), "the state says so")
    # Neither an unrelated upgrade nor a person ends the pause.
    naps.upgrade(values(paused=True, extraLabels={"team": "x"}))
    naps.scale("statefulset/naps-learner", 1)
    naps.until(lambda: has_left(naps), "it is held at zero")
    naps.upgrade(values())
    naps.until(lambda: naps.replicas("deployment/naps-actor") == 2, "as many actors as before")
    naps.trains(beyond=frames // 2)
    assert not naps.state().get("paused")
    # Another number in the values, during a pause, is the one that it ends with.
    naps.upgrade(values(paused=True))
    naps.until(lambda: at_zero(naps), "it is at zero again")
    naps.upgrade(values(paused=True, actor={"replicas": 3}))
    naps.upgrade(values(actor={"replicas": 3}))
    naps.until(lambda: naps.replicas("deployment/naps-actor") == 3, "the new number of actors")
    naps.uninstall()


@pytest.mark.e2e_all
def test_an_idle_release_pauses(namespace: str, tmp_path: Path) -> None:
    idle = Release("idle", namespace, tmp_path)
    given: dict[str, Any] = values(experiment={"stop": {"idle_s": 20}})
    idle.install(given)
    idle.trains()
    idle.scale("deployment/idle-actor", 0)
    idle.until(lambda: idle.state().get("paused", "").startswith("stop.idle_s"), "it pauses")
    idle.until(lambda: has_left(idle), "it is at zero")
    idle.upgrade(given)
    assert at_zero(idle), "an upgrade starts nothing"
    assert main(["resume", "idle", "-n", namespace]) == 0
    idle.until(lambda: idle.replicas("statefulset/idle-learner") == 1, "the learner is back")
    idle.scale("deployment/idle-actor", 1)
    idle.trains()
    idle.uninstall()
