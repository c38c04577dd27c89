"""One release on a real cluster, from install to uninstall. `make e2e`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.release import Release, command, connects, until, values, with_shards

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


@pytest.fixture
def pong(namespace: str, tmp_path: Path) -> Release:
    return Release("pong", namespace, tmp_path)


def test_install_scale_kill_upgrade_uninstall(pong: Release) -> None:
    notes = pong.install(values())
    assert "kubectl -n" in notes
    pong.until(lambda: pong.ready("learner"), "the learner is ready")
    pong.trains()

    # Actors 1 -> 4 -> 0 -> 2; frames follow.
    pong.scale("deployment/pong-actor", 4)
    pong.until(lambda: pong.sessions(8), "four actors with two groups")
    pong.scale("deployment/pong-actor", 0)
    pong.until(lambda: pong.sessions(0), "no actors")
    idle = pong.frames()
    assert pong.ready("learner"), "live, ready and idle"
    pong.until(
        lambda: (pong.status() or {}).get("waiting_for") == "no actors are connected",
        "it says what it waits for",
    )
    assert pong.frames() == idle
    pong.scale("deployment/pong-actor", 2)
    pong.until(lambda: pong.sessions(4), "two actors")
    pong.trains(beyond=idle)

    # A real inference call, by our own image.
    command("helm", "test", "pong", "-n", pong.namespace, "--timeout", "3m", timeout_s=240)

    # An unrelated value restarts nothing, and the scaled number stays.
    before = {p["metadata"]["uid"] for p in (*pong.pods("learner"), *pong.pods("actor"))}
    pong.upgrade(values(pod={}, metrics={"interval": "30s"}))
    assert pong.replicas("deployment/pong-actor") == 2
    assert {p["metadata"]["uid"] for p in (*pong.pods("learner"), *pong.pods("actor"))} == before

    # Another learning rate is refused before anything is replaced. Its digest lets it through, and
    # with the same values it is a resume.
    rate = values(experiment={"learner": {"optimizer": {"learning_rate": 0.002}}})
    said = pong.upgrade(rate, check=False)
    assert "learner.optimizer.learning_rate: 0.00048 -> 0.002" in said
    assert {p["metadata"]["uid"] for p in (*pong.pods("learner"), *pong.pods("actor"))} == before
    rate["learner"]["acceptChange"] = said.partition("learner.acceptChange=")[2].split()[0]
    pong.upgrade(rate)
    pong.until(lambda: changed(pong) and pong.ready("learner"), "the change is in the status")
    pong.upgrade(rate)
    assert "resume refused" in pong.upgrade(values(), check=False)

    # The learner's pod is deleted: it resumes, and frames never go back past the last checkpoint.
    pong.trains()
    saved = pong.saved_frames()
    pong.kill("learner", 0)
    pong.until(lambda: pong.frames() >= 0, "another learner")
    assert pong.frames() >= saved
    pong.trains(beyond=saved)
    # Actors are deleted: others come.
    old = {p["metadata"]["uid"] for p in pong.pods("actor")}
    pong.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=actor", "--wait=false")
    pong.until(
        lambda: pong.sessions(4) and not old & {p["metadata"]["uid"] for p in pong.pods("actor")},
        "other actors",
    )
    pong.trains(beyond=pong.frames())

    # The cost meter sees them.
    until(lambda: float(pong.state().get("dollars", 0)) > 0, "the bill is kept")

    pong.uninstall()
    pong.until(lambda: not pong.get("pods,jobs")["items"], "no pods")
    left = pong.get("all,configmap,secret,role,rolebinding,serviceaccount,networkpolicy,pdb,pvc")
    names = {(item["kind"], item["metadata"]["name"]) for item in left["items"]}
    ours = {(kind, name) for kind, name in names if "pong" in name}
    assert ours == {("PersistentVolumeClaim", "runs-pong-learner-0")}


def changed(release: Release) -> bool:
    """Whether the run says that it goes on with another learning rate."""
    page = ("exec", f"{release.name}-learner-0", "--", "seedbed", "status", f"/runs/{release.name}")
    said = release.kubectl(*page, check=False)
    return "learner.optimizer.learning_rate: 0.00048 -> 0.002 at frame" in said


def test_a_budget_stops_the_run(namespace: str, tmp_path: Path) -> None:
    dear = {"families": {"n2": {"cpu": 3600.0, "memory_gib": 0.0, "spot": 1.0}}}
    capped = Release("capped", namespace, tmp_path)
    # 0.1 + 0.05 + 0.02 vCPU at a dollar a second each: 10 dollars are a minute.
    capped.install(values(experiment={"stop": {"dollars": 10}}, cost={"prices": dear}))
    capped.until(lambda: capped.state().get("finished"), "the budget is spent")
    assert capped.state()["finished"].startswith("stop.dollars")
    spent = float(capped.state()["dollars"])
    assert 10 <= spent < 15
    capped.until(
        lambda: not capped.pods("learner") and not capped.pods("actor"), "the pods are gone"
    )
    capped.uninstall()


@pytest.mark.e2e_all
def test_two_releases_and_a_stranger(namespace: str, tmp_path: Path) -> None:
    one, two = Release("one", namespace, tmp_path), Release("two", namespace, tmp_path)
    scraper = {"podSelector": {"matchLabels": {"scraper": "yes"}}}
    one.install(values(networkPolicy={"scrapers": [scraper]}))
    two.install(values())
    one.trains()
    two.trains()
    for labels, port, reaches in (
        ({}, 8470, False),
        ({}, 9090, False),
        ({"scraper": "yes"}, 8470, False),
        ({"scraper": "yes"}, 9090, True),
        ({"app.kubernetes.io/instance": "two", "app.kubernetes.io/component": "actor",
          "app.kubernetes.io/name": "seedbed"}, 8470, False),
    ):  # fmt: skip
        assert connects(one, labels, port) is reaches, (labels, port)
    # The policies let the release's own actors through. Without a token they are refused too.
    learner = f"one-learner-0.one-learner.{namespace}.svc:8470"
    check = ("seedbed", "check", "learner", "/etc/seedbed/experiment.yaml", f"--learner={learner}")
    inside = ("exec", "deployment/one-actor", "--")
    assert "check: action" in one.kubectl(*inside, *check, check=False)
    said = one.kubectl(*inside, "env", "-u", "SEEDBED_TOKEN_FILE", *check, check=False)
    assert "UNAUTHENTICATED" in said
    # Metrics are open, and the status is not.
    assert one.http("learner-0", 9090, "metrics")
    assert one.http("learner-0", 9090, "status") is None
    one.uninstall()
    two.trains(beyond=two.frames())  # the other one goes on
    two.uninstall()


@pytest.mark.e2e_all
def test_mtls_with_given_secrets(namespace: str, tmp_path: Path) -> None:
    """Certificates as cert-manager would write them; who has none gets no action."""
    secret = Release("secret", namespace, tmp_path)
    secret.install(with_shards(1, tls=secret.certificates()))
    secret.trains()
    secret.until(lambda: secret.counter("updates") > 0, "it trains from its shard")
    command("helm", "test", "secret", "-n", namespace, "--timeout", "3m", timeout_s=240)
    # From an actor's pod, which the network policy lets through, but without its certificate.
    said = secret.kubectl(
        "exec", "deployment/secret-actor", "--",
        "seedbed", "check", "learner", "/etc/seedbed/experiment.yaml",
        f"--learner=secret-learner-0.secret-learner.{namespace}.svc:8470", "--timeout-s=5",
        check=False,
    )  # fmt: skip
    assert "no action from" in said
    secret.uninstall()
