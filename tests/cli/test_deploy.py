"""`seedbed deploy`: the laptop's file becomes a release, and every failure says what to do.

Helm renders for real against a stand-in API server. Where only a cluster could answer (`helm
upgrade`, `kubectl`) and where images would be built, small programs in PATH take the place.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.config import parse_experiment
from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import ROOT, Rendered
from tests.support.deploy_programs import Programs, pod

PONG = str(ROOT / "experiments" / "pong-vtrace.yaml")


@pytest.mark.parametrize("known", ["namespace", "forbidden"])
def test_a_namespace_that_is_there_is_not_made(programs: Programs, known: str) -> None:
    """Helm would refuse whoever may make no namespaces."""
    (programs.folder / known).write_text("namespace/rl")
    assert main(["deploy", PONG, "--namespace", "rl"]) == 0
    (upgrade,) = programs.log("helm")
    assert "--create-namespace" not in upgrade


def test_a_file_is_installed_priced_and_followed(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = pod("pong-vtrace-learner-0", state={"waiting": {"reason": "ContainerCreating"}})
    programs.pods([waits], [waits], [pod("pong-vtrace-learner-0", ready=True)])
    assert main(["deploy", PONG, "--set", "experiment.seed=7", "--set", "actor.spot=true"]) == 0
    out, said = capsys.readouterr()
    for word in (
        "1 x  pong-vtrace-learner",
        "1 x  pong-vtrace-actor",
        "an hour, ",
        "volumes included",
        "us-",
    ):
        assert word in said
    assert said.count("pong-vtrace-learner-0: ContainerCreating") == 1, "a line for each change"
    assert "pong-vtrace-learner-0: 2 groups of environments play\n" in said
    assert "pong-vtrace is up: its actors play\n" in said
    assert "storage class (the cluster's default)" in said
    assert out == "the page of status\n\n"
    (upgrade,) = programs.log("helm")
    assert upgrade.startswith("upgrade --install pong-vtrace ")
    assert "--create-namespace" in upgrade
    assert programs.values("set") == {"experiment": {"seed": 7}, "actor": {"spot": True}}
    follows = programs.values("experiment")
    assert follows["experimentFile"] == Path(PONG).read_text()
    assert follows["actor"] == {"replicas": 1}


def test_a_dry_run_shows_the_price_without_a_cluster(
    programs: Programs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(programs.folder / "none"))
    assert main(["deploy", PONG, "--dry-run", "--profile", "gke-autopilot"]) == 0
    out, said = capsys.readouterr()
    assert not out
    assert "1 x  pong-vtrace-learner" in said
    assert "an hour, " in said
    assert said.endswith("nothing is installed (--dry-run)\n")
    assert not programs.log("helm")
    assert not programs.log("docker")


def test_numbers_of_the_laptop_are_those_of_the_release(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "gala.yaml"
    file.write_text(
        Path(PONG).read_text().replace("processes: 1", "processes: 3")
        + "gossip: {replicas: 4, topology: allreduce}\n"
    )
    assert main(["deploy", str(file)]) == 0
    follows = programs.values("experiment")
    assert follows["learner"] == {"replicas": 4, "topology": "allreduce"}
    assert follows["actor"] == {"replicas": 12}


@pytest.mark.slow
def test_images_are_built_pushed_and_named(programs: Programs) -> None:
    options = ["--registry", "reg.example/me", "--set", "experiment.learner.backend=jax"]
    assert main(["deploy", PONG, *options]) == 0
    log = programs.log("docker")
    assert [line.split()[0] for line in log] == ["build", "tag", "push"] * 3
    assert "--build-arg=BACKEND=jax --build-arg=ACCELERATOR=cpu" in log[0]
    assert "--file=Dockerfile.actor --target=cost" in log[6]
    pushed = [line.split()[1] for line in log if line.startswith("push")]
    assert [image.rpartition(":")[2] for image in pushed] == ["0123456789ab"] * 3
    assert all(image.startswith("reg.example/me/seedbed-") for image in pushed)
    images = programs.values("images")
    assert images["image"] == {"registry": "reg.example/me"}
    assert images["actor"] == {"image": {"tag": "0123456789ab"}}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "experiment.learner.unroll=3",
            ["unknown key", "did you mean learner.unroll_length"],
        ),
        ("learner.unroll=3", ["values that the chart does not take", "unroll"]),
        ("replay.shards=2", ["replay.shards is 2", "agent is vtrace"]),
        ("actor", ["--set 'actor' must have the form a.b=value"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_installed(
    programs: Programs, capsys: pytest.CaptureFixture[str], setting: str, words: list[str]
) -> None:
    assert main(["deploy", PONG, "--set", setting]) == ExitCode.CONFIG
    said = capsys.readouterr().err
    for word in words:
        assert word in said
    assert not programs.log("helm")


@pytest.mark.slow
def test_another_learning_rate_is_refused_before_anything_is_built(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the chart's words and digest, and the exit code that the learner would have."""
    chart = ("template", "pong-vtrace", str(ROOT / "helm" / "seedbed"), "--set-file")
    answer = programs.server.helm(*chart, f"experimentFile={PONG}")
    programs.server.apply(Rendered(answer.stdout))
    learner = programs.server.objects["StatefulSet", "pong-vtrace-learner"]
    learner["status"] = {"readyReplicas": 1}
    rate = "--set=experiment.learner.optimizer.learning_rate=0.002"
    assert main(["deploy", PONG, rate, "--registry=r.example/x"]) == ExitCode.RESUME_REFUSED
    said = capsys.readouterr().err
    assert "learner.optimizer.learning_rate: 0.0015 -> 0.002" in said
    assert programs.log("docker") == programs.log("helm") == []
    accept = next(line for line in said.splitlines() if "this run" in line).split()[-1]
    assert main(["deploy", PONG, rate, f"--set={accept}"]) == 0
    assert len(programs.log("helm")) == 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Error: Kubernetes cluster unreachable: connection refused", "set KUBECONFIG"),
        ("Error: UPGRADE FAILED: another operation (install) is in progress", "helm rollback"),
        ("Error: roles is forbidden: User x cannot create", "--namespace"),
        (
            "Error: a.yaml: error calling include: error calling lookup: jobs is forbidden\n\n"
            "Use --debug flag to render out invalid YAML",
            "failed with exit code 1: jobs is forbidden; the account may not",
        ),
        (
            "Error: nothing known",
            "nothing known; `kubectl --namespace=default get pods,events` may",
        ),
    ],
)
def test_a_failure_of_helm_says_what_to_do(
    programs: Programs, capsys: pytest.CaptureFixture[str], said: str, advice: str
) -> None:
    (programs.folder / "helm.stderr").write_text(said)
    assert main(["deploy", PONG]) == ExitCode.DEPLOY
    said_here = capsys.readouterr().err
    assert advice in said_here
    assert "seedbed-deploy-" not in said_here, "a folder that is deleted"


def test_a_release_name_that_cannot_be_is_a_wrong_option(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", PONG, "--release", "Bad_Name"]) == ExitCode.CONFIG
    said = capsys.readouterr().err
    assert "Bad_Name" in said
    assert "--release" in said
    assert not programs.log("helm")


def test_wrong_values_are_told_before_a_cluster_is_asked(
    programs: Programs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(programs.folder / "none"))
    assert main(["deploy", PONG, "--set", "learner.unroll=3"]) == ExitCode.CONFIG
    assert "unroll" in capsys.readouterr().err
    assert main(["deploy", PONG]) == ExitCode.DEPLOY
    assert "set KUBECONFIG" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("learner.hosts=2",), "learner: hosts 2 train as one with backend jax"),
        (
            ("learner.hosts=2", "learner.replicas=3", "learner.topology=allreduce",
             "experiment.learner.backend=jax"),
            "use gossip.replicas 1 and learner.hosts 6",
        ),
    ],
)  # fmt: skip
def test_a_release_whose_learner_would_refuse_is_refused(
    programs: Programs,
    capsys: pytest.CaptureFixture[str],
    values: tuple[str, ...],
    words: str,
) -> None:
    """Not by the chart: by the schema, of the experiment as the chart completes it."""
    given = [word for value in values for word in ("--set", value)]
    assert main(["deploy", PONG, "--dry-run", *given]) == ExitCode.CONFIG
    said = capsys.readouterr().err
    assert "the experiment of pong-vtrace-experiment: " in said
    assert words in said


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        ("a" * 1_100_000, "ConfigMap big-experiment has 1,100,"),
        # Half of what compresses badly is enough: Helm keeps the values and what they render.
        (os.urandom(300_000).hex(), "Helm's Secret of the release has 1,"),
    ],
)
def test_a_release_that_no_object_holds_is_refused_with_both_sizes(
    programs: Programs, capsys: pytest.CaptureFixture[str], blob: str, words: str
) -> None:
    file = programs.folder / "big.yaml"
    file.write_text(f"name: big\nenvironment: {{id: CartPole-v1, kwargs: {{blob: {blob}}}}}\n")
    for more in (["--dry-run"], []):
        assert main(["deploy", str(file), *more]) == ExitCode.CONFIG
        said = capsys.readouterr().err
        assert words in said
        assert "1,048,576" in said
    assert not programs.log("helm")


def test_pods_that_a_namespace_refuses_are_named(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a quota, a limit range or a policy: there is no pod then to look at."""
    name = "pong-vtrace-cost-7ffb87d656"
    message = f'pods "{name}-" is forbidden: failed quota: q: must specify limits.cpu'
    event = {
        "involvedObject": {"kind": "ReplicaSet", "name": name}, "reason": "FailedCreate",
        "lastTimestamp": "2999-01-01T00:00:00Z", "message": message,
    }  # fmt: skip
    for left in (programs.folder / "pods").iterdir():
        left.unlink()
    programs.pods([])
    (programs.folder / "events").write_text(json.dumps({"items": [event]}))
    assert main(["deploy", PONG]) == ExitCode.DEPLOY
    assert f"ReplicaSet {name} cannot make its pods: {message}" in capsys.readouterr().err


def test_a_missing_program_is_named(
    programs: Programs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs.folder))
    assert main(["deploy", PONG]) == ExitCode.DEPLOY
    assert "helm is not in PATH: install Helm" in capsys.readouterr().err


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("container", "words", "code"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}},
            ["ImagePullBackOff of r/seedbed-learner:x", "--registry"],
            ExitCode.DEPLOY,
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 12, "message": "seedbed: no GPU\n"}},
            },
            ["exit code 12 (BACKEND", "no GPU"],
            ExitCode.BACKEND,
        ),
        (
            {
                "restartCount": 5,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "message": "seedbed: a defect\n"}},
            },
            ["exit code 1 (INTERNAL", "a defect"],
            ExitCode.DEPLOY,
        ),
        (
            {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            ["learner.resources.limits.memory", "replay.shards"],
            ExitCode.DEPLOY,
        ),
    ],
)
def test_a_pod_that_cannot_start_ends_the_waiting(
    programs: Programs,
    capsys: pytest.CaptureFixture[str],
    container: dict[str, Any],
    words: list[str],
    code: ExitCode,
) -> None:
    programs.pods([pod("pong-vtrace-learner-0", **container)])
    assert main(["deploy", PONG]) == code
    said = capsys.readouterr().err
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("server", "registry", "is_told"),
    [
        ("https://192.0.2.7:443", "localhost", True),
        ("https://192.0.2.7:443", "reg.example/me", False),
        ("https://127.0.0.1:6443", "localhost", False),
    ],
)
def test_images_of_localhost_are_told_where_the_cluster_is_elsewhere(
    programs: Programs,
    capsys: pytest.CaptureFixture[str],
    server: str,
    registry: str,
    is_told: bool,
) -> None:
    (programs.folder / "server").write_text(server)
    assert main(["deploy", PONG, "--set", f"image.registry={registry}"]) == 0
    said = capsys.readouterr().err
    assert ("a node of 192.0.2.7 takes localhost/ for itself" in said) == is_told


def test_a_profile_is_one_of_the_chart_or_a_file(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", PONG, "--profile", "gke-nothing"]) == ExitCode.CONFIG
    assert "--profile gke-nothing is neither" in capsys.readouterr().err
    own = programs.folder / "own.yaml"
    own.write_text("actor: {replicas: 9}\n")
    assert main(["deploy", PONG, "--profile", str(own)]) == 0
    assert "9 x  pong-vtrace-actor" in capsys.readouterr().err, "a profile is above the file"


def test_the_release_reads_what_was_checked(programs: Programs) -> None:
    text = programs.folder / "mine.yaml"
    text.write_text("name: mine\nenvironment: {id: CartPole-v1}\n")
    programs.pods([pod("mine-learner-0", ready=True)])
    assert main(["deploy", str(text)]) == 0
    assert parse_experiment(programs.values("experiment")["experimentFile"]).name == "mine"


def test_a_chart_that_is_not_there_is_named(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", PONG, "--chart", str(programs.folder / "none")]) == ExitCode.CONFIG
    assert "/none: Seedbed's wheel and a checkout have one" in capsys.readouterr().err


def test_a_pod_that_the_upgrade_replaces_is_no_failure(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {"terminated": {"exitCode": 10, "message": "seedbed: wrong\n"}}
    before = [pod("pong-vtrace-learner-0", lastState=ended)]
    programs.pods(before, before, [pod("pong-vtrace-learner-0", ready=True)])
    assert main(["deploy", PONG]) == 0
    assert "wrong" not in capsys.readouterr().err
