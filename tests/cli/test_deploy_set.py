"""`seedbed deploy` of a set: a sweep becomes one release, and what cannot run is refused before."""

from __future__ import annotations

import base64
import gzip
import json
import random
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.main import main
from seedbed.deploy import follow as deploy_follow
from seedbed.deploy.set_shapes import RESOURCES
from seedbed.deploy.sizes import LIMIT_BYTES
from seedbed.runtime.exit_codes import ExitCode
from seedbed.services.sets.spec import read_spec
from seedbed.sets.folder import digests_of, read_members, write_set
from seedbed.sets.resolve import resolve
from seedbed.sets.run_objects import objects_of_run, shape_of
from seedbed.sets.sweep import read_sweep
from tests.support.deploy_programs import Programs, pod

RATES = "experiment.learner.optimizer.learning_rate=1e-3,3e-3,1e-2"
SET = ("deploy", "cartpole-vtrace", "--set", RATES, "--seeds", "2", "--max-learners", "2")
BY_HELM = {"meta.helm.sh/release-name": "it"}
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(autouse=True)
def controller(programs: Programs) -> None:
    programs.pods([pod("cartpole-vtrace-set-6d5f-x2x", ready=True)])


def render(folder: Path, *words: str) -> Objects:
    """The objects that --render writes."""
    assert main([*words, "--render", str(folder)]) == 0
    found = [one for one in yaml.safe_load_all((folder / "set.yaml").read_text()) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def spec_of(objects: Objects, name: str = "cartpole-vtrace") -> tuple[dict[str, Any], Any]:
    """Data and templates of the ConfigMap of a set."""
    spec = objects["ConfigMap", f"{name}-set"]
    packed = base64.b64decode(spec["binaryData"]["templates.json.gz"])
    return spec["data"], json.loads(gzip.decompress(packed))["shapes"]


def test_a_sweep_is_one_release(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SET, "--budget-dollars", "0.02", "-n", "lab"]) == 0
    said = capsys.readouterr().err
    for words in (
        "set cartpole-vtrace: 6 runs, 3 settings with 2 seeds each, at most 6.00M frames",
        "ended at $0.0200 together",
        "at most 2 runs at once (--max-learners 2)",
        "an hour at the limits",
        "a month until they are deleted",
        "longest name: cartpole-vtrace-lr-1e-3-s1, 26 letters",
        "seedbed list cartpole-vtrace -n lab",
    ):
        assert words in said
    (upgrade,) = programs.log("helm")
    assert upgrade.startswith("upgrade --install cartpole-vtrace ")
    assert "seedbed-set --namespace=lab" in upgrade
    assert "--create-namespace" in upgrade
    values = programs.values("set")
    assert values["limits"] == {"learners": 2, "actors": 0, "gpus": 0}
    assert len(values["names"]) == 6
    assert not [line for line in programs.log("kubectl") if "patch" in line]


def test_the_controller_resolves_the_same_runs(programs: Programs, tmp_path: Path) -> None:
    axes = ("--set", "experiment.learner.backend=tensorflow,jax", "--name", "two")
    axes += ("--set", "set.volumes=free")
    objects = render(tmp_path, *SET, *axes)
    data, shapes = spec_of(objects, "two")
    for name in ("sweep.yaml", "experiment.yaml"):
        (tmp_path / name).write_text(data[name])
    resolved = resolve(read_sweep(tmp_path / "sweep.yaml"), "sweep.yaml")
    assert resolved.name == "two"
    named = set()
    for run in resolved.runs:
        template = shapes[shape_of(run.experiment)]
        made = objects_of_run(template, run.name, run.experiment, 0)
        named |= {(*RESOURCES[item["kind"]], item["metadata"]["name"]) for item in made}
        named.add(("", "persistentvolumeclaims", f"runs-{run.name}-learner-0"))
    assert len(shapes) == 2
    # Each of these objects is one that the controller may make, and each name one of its Role.
    rules = objects["Role", "two-set"]["rules"]
    allowed = {
        (*rule["apiGroups"], *rule["resources"], name)
        for rule in rules
        if "delete" in rule["verbs"]
        for name in rule["resourceNames"]
    }
    assert allowed == named
    meters = objects["Role", "two-set-cost"]["rules"]
    states = next(rule for rule in meters if "configmaps" in rule["resources"])["resourceNames"]
    assert states == [f"{run.name}-state" for run in resolved.runs]


_READS = """
import sys
for name in ("keras", "tensorflow", "jax", "scipy", "gymnasium", "own"):
    sys.modules[name] = None
from pathlib import Path
from seedbed.services.sets.spec import read_spec
from seedbed.sets.run_objects import objects_of_run
spec = read_spec(Path(sys.argv[1]))
for run in spec.wanted.runs:
    print(run.name, len(objects_of_run(spec.template(run.experiment), run.name, run.experiment, 0)))
"""


@pytest.mark.slow
def test_the_controllers_image_reads_a_set_with_code_of_others(
    programs: Programs, tmp_path: Path
) -> None:
    """It has neither a backend nor the environment, the network or SciPy."""
    own = ("experiment.learner.network=own.networks:Net", "experiment.environment.id=own:make")
    objects = render(tmp_path, *SET, *(word for text in own for word in ("--set", text)))
    spec = objects["ConfigMap", "cartpole-vtrace-set"]
    for name, text in spec["data"].items():
        (tmp_path / name).write_text(text)
    for name, text in spec["binaryData"].items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    command = [sys.executable, "-c", _READS, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    names = [line.split()[0] for line in answer.stdout.splitlines()]
    (rule,) = (
        rule
        for rule in objects["Role", "cartpole-vtrace-set"]["rules"]
        if rule["resources"] == ["statefulsets"] and "delete" in rule["verbs"]
    )
    assert [f"{name}-learner" for name in names] == rule["resourceNames"]


def test_runs_have_the_accounts_and_the_tokens_of_the_set(
    programs: Programs, tmp_path: Path
) -> None:
    identity = "learner.pod.serviceAccount.annotations={iam.gke.io/gcp-service-account: a@b}"
    objects = render(tmp_path, *SET, "--set", identity, "--set", "extraLabels={team: rl}")
    _, shapes = spec_of(objects)
    (template,) = shapes.values()
    kinds = {item["kind"] for item in template}
    assert not kinds & {"ServiceAccount", "Role", "RoleBinding", "Pod", "Secret"}
    text = json.dumps(template)
    for role in ("learner", "actor", "cost"):
        account = objects["ServiceAccount", f"cartpole-vtrace-set-{role}"]["metadata"]
        assert account["labels"]["team"] == "rl"
        assert f'"serviceAccountName": "cartpole-vtrace-set-{role}"' in text
        assert ("iam.gke.io/gcp-service-account" in account["annotations"]) == (role == "learner")
    assert '"secretName": "cartpole-vtrace-set-auth"' in text
    assert '"--set=cartpole-vtrace"' in text
    assert '"--ttl-s=0"' in text


def test_the_same_command_with_more_is_an_upgrade_that_changes_no_template(
    programs: Programs, tmp_path: Path
) -> None:
    before = render(tmp_path / "before", *SET)
    more = ("deploy", "cartpole-vtrace", "--set", RATES, "--seeds", "3", "--max-learners", "4")
    after = render(tmp_path / "after", *more, "--budget-dollars", "1")
    (data, shapes), (old_data, old_shapes) = spec_of(after), spec_of(before)
    assert shapes == old_shapes
    assert json.loads(data["limits.json"])["learners"] == 4
    assert data["experiment.yaml"] == old_data["experiment.yaml"]
    assert data["sweep.yaml"] != old_data["sweep.yaml"]


def test_settings_of_a_profile_are_below_those_of_the_set(
    programs: Programs, tmp_path: Path
) -> None:
    profile = tmp_path / "own.yaml"
    profile.write_text(
        "experiment:\n  learner: {batch_size: 8, optimizer: {learning_rate: 0.5}}\n"
        "actor: {replicas: 3}\nimage: {registry: r.io/me, tag: '7'}\n"
    )
    objects = render(tmp_path, *SET, "--profile", str(profile), "--max-actors", "7")
    data, shapes = spec_of(objects)
    assert yaml.safe_load(data["experiment.yaml"])["learner"]["batch_size"] == 8
    (template,) = shapes.values()
    (text,) = (
        item["data"]["experiment.yaml"]
        for item in template
        if "experiment.yaml" in (item.get("data") or {})
    )
    assert yaml.safe_load(text)["learner"]["optimizer"]["learning_rate"] != 0.5
    assert yaml.safe_load(text)["learner"]["batch_size"] == 8
    pod = objects["Deployment", "cartpole-vtrace-set"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "r.io/me/seedbed-cost:7"


def test_without_rights_to_roles_the_accounts_and_tokens_are_those_of_others(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*SET, "--set", "rbac.create=false")
    assert main([*words, "--dry-run"]) == ExitCode.CONFIG
    assert "set auth.existingSecret: cartpole-vtrace-tokens" in capsys.readouterr().err
    objects = render(tmp_path, *words, "--set", "auth.existingSecret=own")
    assert not {kind for kind, _ in objects if kind.startswith("Role")}
    names = {name for kind, name in objects if kind == "ServiceAccount"}
    assert names == {"cartpole-vtrace-set-learner", "cartpole-vtrace-set-actor"}
    pod = objects["Deployment", "cartpole-vtrace-set"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "seedbed-set"
    _, shapes = spec_of(objects)
    (template,) = shapes.values()
    text = json.dumps([template, pod])
    assert '"serviceAccountName": "seedbed-meter"' in text
    assert text.count('"secretName": "own"') == 4  # of learner, actor, meter and controller
    assert "set-auth" not in text


def test_values_of_the_sets_chart(programs: Programs, tmp_path: Path) -> None:
    words = ("--set", "set.runs=delete", "--set", "set.persistence.size=2Gi")
    objects = render(tmp_path, *SET, *words)
    claim = objects["PersistentVolumeClaim", "cartpole-vtrace-set"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    text = json.dumps(objects["Deployment", "cartpole-vtrace-set"])
    assert "--owns-runs" in text
    assert "--free-volumes" not in text


def test_volumes_are_freed_by_one_option(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = render(tmp_path, *SET, "--set", "set.volumes=free")
    assert "--free-volumes" in json.dumps(objects["Deployment", "cartpole-vtrace-set"])
    said = capsys.readouterr().err
    assert "a month, less those of runs that are over" in said
    assert "until they are deleted" not in said


def sweep_of(folder: Path, base: str, *rates: str) -> tuple[str, ...]:
    """A command of a set whose experiment has another learning rate each time."""
    folder.mkdir(exist_ok=True)
    (folder / "own.yaml").write_text(
        "name: own\nenvironment: {id: CartPole-v1}\nstop: {env_frames: 10000}\n"
        f"learner: {{optimizer: {{learning_rate: {base}}}}}\n"
    )
    file = folder / "rates.yaml"
    axes = f"{{learner.optimizer.learning_rate: [{', '.join(rates)}]}}"
    file.write_text(f"name: lab\nexperiment: own.yaml\naxes: {axes}\n")
    return ("deploy", str(file), "--max-learners", "1")


def granted(objects: Objects) -> set[str]:
    """Names of runs that the Roles of a set let the controller and the meters touch."""
    names = [
        {
            name.removesuffix("-state")
            for rule in objects["Role", role]["rules"]
            for name in rule.get("resourceNames", [])
            if name.endswith("-state") and name != "lab-set-state"
        }
        for role in ("lab-set", "lab-set-cost")
    ]
    assert names[0] == names[1]
    return names[0]


def as_controller(objects: Objects, spec: Path, folder: Path) -> list[str]:
    """What a controller that reads a release makes of its folder: the names of all runs."""
    found = objects["ConfigMap", "lab-set"]
    spec.mkdir(exist_ok=True)
    for name, text in found["data"].items():
        (spec / name).write_text(text)
    for name, text in found["binaryData"].items():
        (spec / name).write_bytes(base64.b64decode(text))
    write_set(folder, read_spec(spec).wanted)
    return [member.name for member in read_members(folder)]


def test_names_that_collide_in_an_upgrade_are_those_of_the_roles(
    programs: Programs, tmp_path: Path
) -> None:
    out, spec, folder = tmp_path / "out", tmp_path / "spec", tmp_path / "set"
    first = render(out, *sweep_of(tmp_path / "sweep", "0.001", "0.001", "0.003"))
    assert granted(first) == {"lab-s1", "lab-lr-3e-3-s1"}
    assert as_controller(first, spec, folder) == ["lab-s1", "lab-lr-3e-3-s1"]
    # The same command: the same Roles.
    assert granted(render(out, *sweep_of(tmp_path / "sweep", "0.001", "0.001", "0.003"))) == {
        "lab-s1", "lab-lr-3e-3-s1",
    }  # fmt: skip
    # The experiment's own rate, whose run has no rate in its name, is another one.
    upgrade = sweep_of(tmp_path / "sweep", "0.005", "0.005", "0.001")
    second = render(out, *upgrade)
    names = as_controller(second, spec, folder)
    (new,) = {*names} - {"lab-s1", "lab-lr-3e-3-s1"}
    assert new not in ("lab-lr-1e-3-s1", "lab-lr-5e-3-s1"), "no name collided"
    assert {*names} <= granted(second), "runs that the command no longer names, too"
    # And once more over that.
    third = render(out, *sweep_of(tmp_path / "sweep", "0.007", "0.007", "0.005"))
    names = as_controller(third, spec, folder)
    assert len(names) == 4
    assert {*names} <= granted(third)


@pytest.mark.parametrize("left", ["all", "state", "role"])
def test_an_upgrade_on_a_cluster_finds_the_names_of_before(
    programs: Programs, tmp_path: Path, left: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where an uninstall has left the state, or no controller has written one yet."""
    first = render(tmp_path / "out", *sweep_of(tmp_path / "sweep", "0.001", "0.001", "0.003"))
    as_controller(first, tmp_path / "spec", tmp_path / "set")
    state = first["ConfigMap", "lab-set-state"]
    digests = digests_of(tmp_path / "set")
    rows = {name: {"state": "waiting", "digest": digests[name]} for name in digests}
    runs = json.dumps(rows)
    state["binaryData"] = {"runs.json.gz": base64.b64encode(gzip.compress(runs.encode())).decode()}
    there = {
        "all": [first["ConfigMap", "lab-set"], state, first["Role", "lab-set"]],
        "state": [state],
        "role": [first["ConfigMap", "lab-set"], first["Role", "lab-set-cost"]],
    }[left]
    for item in there:
        item["metadata"] |= {"namespace": "default", "annotations": BY_HELM}
    other = object_of("ConfigMap", "other-set-state", "seedbed-set", "other")
    runs = json.dumps({"other-s1": {"state": "waiting"}})
    other["binaryData"] = {"runs.json.gz": base64.b64encode(gzip.compress(runs.encode())).decode()}
    (programs.folder / "seedbed-set.json").write_text(json.dumps({"items": [*there, other]}))
    programs.pods([pod("lab-set-6d5f-x2x", ready=True)])
    assert main([*sweep_of(tmp_path / "sweep", "0.005", "0.001", "0.003")]) == 0
    told = "beside these" in capsys.readouterr().err
    assert not told, "the run of before has another name, and is one of today's"
    assert main([*sweep_of(tmp_path / "sweep", "0.005", "0.005", "0.001")]) == 0
    told = "beside these the set has 1 run" in capsys.readouterr().err
    assert told == (left != "role"), "else nothing tells what its runs are"
    (tmp_path / "second").mkdir()
    words = sweep_of(tmp_path / "sweep", "0.005", "0.005", "0.001")
    second = render(tmp_path / "second", *words)
    used = as_controller(second, tmp_path / "spec", tmp_path / "set")
    found = programs.values("set")["names"]
    assert {*used} <= {*found}
    assert "other-s1" not in found
    same = sweep_of(tmp_path / "sweep", "0.001", "0.001", "0.003")
    assert main([*same]) == 0
    known = left != "role" or "lab-set" in str(there[0])
    assert (sorted(programs.values("set")["names"]) == sorted(digests)) == known, "none twice"


@pytest.mark.parametrize("option", [["--dry-run"], ["--render", "out"]])
def test_a_plan_and_files_need_no_cluster(
    programs: Programs,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: list[str],
) -> None:
    monkeypatch.chdir(programs.folder)
    monkeypatch.setenv("KUBECONFIG", str(programs.folder / "none"))
    (programs.path / "kubectl").unlink()
    assert main([*SET, *option]) == 0
    assert "6 runs" in capsys.readouterr().err
    assert not programs.log("helm")


def test_a_command_without_confirm_keeps_what_is_confirmed(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [{"learner.optimizer.learning_rate": rate} for rate in (1e-3, 1e-2)]
    choice = json.dumps({"settings": settings, "seeds": 3})
    spec = object_of("ConfigMap", "cartpole-vtrace-set", "seedbed-set", "cartpole-vtrace")
    spec["data"] = {"confirm.json": choice}
    (programs.folder / "seedbed-set.json").write_text(json.dumps({"items": [spec]}))
    assert main([*SET]) == 0
    assert "confirm: 6 runs on fresh seeds" in capsys.readouterr().err
    values = programs.values("set")
    assert values["files"]["confirm"] == choice
    assert len(values["names"]) == 12
    assert main(["deploy", "cartpole-vtrace", "--confirm", "3"]) == ExitCode.USAGE
    assert "--confirm is of a set of runs" in capsys.readouterr().err


def test_failed_runs_are_started_again_by_the_controller(programs: Programs) -> None:
    assert main([*SET, "--retry", "failed"]) == 0
    (patch,) = programs.log("kubectl")
    assert "patch configmap cartpole-vtrace-set-state" in patch
    assert '{"data": {"retry": "failed"}}' in patch


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--seeds", "2"), ExitCode.USAGE, "--seeds is of a set of runs: say how many"),
        (
            ("--max-learners", "1", "--name", "a" * 24), ExitCode.CONFIG,
            f"a run of it would be called {'a' * 24}-s1, with 27 letters of at most 35",
        ),
        (("--max-learners", "1", "--name", "Bad"), ExitCode.CONFIG, "'Bad'"),
        (
            ("--max-learners", "1", "--max-actors", "2", "--set", "actor.replicas=3",
             "--set", "experiment.actor.processes=0"),
            ExitCode.CONFIG,
            "--max-actors is 2, and cartpole-vtrace-s1 alone has 3 actors",
        ),
        (
            ("--max-learners", "1", "--max-gpus", "1", "--set", "learner.accelerator.type=gpu",
             "--set", "learner.accelerator.count=2", "--set", "experiment.learner.backend=jax"),
            ExitCode.CONFIG,
            "--max-gpus is 1, and cartpole-vtrace-s1 alone has 2 gpus",
        ),
        (
            ("--max-learners", "1", "--set", "experiment.gossip.replicas=2"),
            ExitCode.CONFIG,
            "--max-learners is 1, and cartpole-vtrace-s1 alone has 2 learners",
        ),
        (
            ("--max-learners", "2", "--set", "learner.replicas=2"),
            ExitCode.CONFIG,
            "learner.replicas is 2, and gossip.replicas of cartpole-vtrace-s1 is 1",
        ),
        (
            ("--max-learners", "1", "--budget-dollars", "1", "--set",
             "experiment.stop={mean_return: 400, env_frames: 0}"),
            ExitCode.CONFIG,
            "nothing can be reserved for it",
        ),
        (
            ("--max-learners", "1", "--set", "cost.readNodes=true"),
            ExitCode.CONFIG,
            "(cost.readNodes)",
        ),
        (
            ("--max-learners", "1", "--set", "cost.enabled=false"),
            ExitCode.CONFIG,
            "cost.enabled is false",
        ),
        (
            ("--max-learners", "1", "--set", "experiment.learner.device=auto,gpu"),
            ExitCode.CONFIG,
            "experiment.learner.device is gpu and learner.accelerator.type is none",
        ),
        (
            ("--max-learners", "1", "--set", "set.unknown=1"), ExitCode.CONFIG, "unknown",
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_is_made(
    programs: Programs,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: ExitCode,
    said: str,
) -> None:
    assert main(["deploy", "cartpole-vtrace", *words]) == code
    assert said in capsys.readouterr().err
    assert not programs.log("helm")
    assert not programs.log("asked")


def test_a_sweeps_file_without_a_limit_is_a_wrong_command(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    file = programs.folder / "rates.yaml"
    file.write_text("experiment: cartpole-vtrace\nseeds: 2\n")
    for target in (str(file), "atari57"):
        assert main(["deploy", target]) == ExitCode.USAGE
        assert "--max-learners N" in capsys.readouterr().err
    assert main(["deploy", str(file), "--max-learners", "1", "--dry-run"]) == 0


def test_the_longest_name_that_may_be(programs: Programs, tmp_path: Path) -> None:
    name = "a" * 23
    objects = render(tmp_path, *SET, "--name", name)
    assert max(len(one) for _, one in objects) <= 63
    data, shapes = spec_of(objects, name)
    (tmp_path / "experiment.yaml").write_text(data["experiment.yaml"])
    (tmp_path / "sweep.yaml").write_text(data["sweep.yaml"])
    for run in resolve(read_sweep(tmp_path / "sweep.yaml"), "sweep.yaml").runs:
        (template,) = shapes.values()
        made = objects_of_run(template, run.name, run.experiment, 0)
        assert max(len(item["metadata"]["name"]) for item in made) <= 63


def sizes(said: str) -> tuple[int, int]:
    """Bytes of the largest object, and of Helm's Secret, as a plan tells them."""
    (line,) = (one for one in said.splitlines() if "largest object" in one)
    largest, release = (
        int(line.partition(before)[2].split()[0].replace(",", ""))
        for before in (" has ", "Helm's Secret ")
    )
    return largest, release


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learners", "volumes", "least"), [(1, "keep", 600_000), (4, "free", 800_000)]
)
def test_a_thousand_runs_with_long_values_fit(
    programs: Programs, capsys: pytest.CaptureFixture[str], learners: int, volumes: str, least: int
) -> None:
    """The figures are those of docs/kubernetes-sets.md."""
    draw = random.Random(1)
    letters = string.ascii_lowercase + string.digits
    values = [{"note": "".join(draw.choices(letters, k=40))} for _ in range(1000)]
    tree = {"experiment": "cartpole-vtrace", "name": "b" * 23, "axes": {}}
    file = programs.folder / "big.yaml"
    file.write_text(yaml.safe_dump({**tree, "axes": {"environment.kwargs": values}}))
    several = (f"--set=experiment.gossip.replicas={learners}", f"--set=set.volumes={volumes}")
    command = ["deploy", str(file), "--max-learners", "4", *several]
    assert main([*command, "--dry-run"]) == 0
    largest, release = sizes(capsys.readouterr().err)
    assert least < largest < least + 100_000 < LIMIT_BYTES, largest
    assert 200_000 < release < 300_000 < LIMIT_BYTES
    settings = [{"environment.kwargs": value} for value in values[:2]]
    before = object_of("ConfigMap", f"{tree['name']}-set", "seedbed-set", "b" * 23)
    before["data"] = {"confirm.json": json.dumps({"settings": settings, "seeds": 10})}
    (programs.folder / "out").mkdir()
    (programs.folder / "out/set.yaml").write_text(yaml.safe_dump(before))
    assert main([*command, "--render", str(programs.folder / "out")]) == 0
    said = capsys.readouterr().err
    assert "confirm: 20 runs on fresh seeds" in said
    assert largest < sizes(said)[0] < largest * 1.03, "twenty names more"
    assert release < sizes(said)[1] < release * 1.03


def test_what_does_not_fit_is_refused_with_both_numbers(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(1)
    values = [{"note": draw.randbytes(13_500).hex()} for _ in range(40)]
    tree = {"experiment": "cartpole-vtrace", "axes": {"environment.kwargs": values}}
    file = programs.folder / "big.yaml"
    file.write_text(yaml.safe_dump(tree))
    assert main(["deploy", str(file), "--max-learners", "2"]) == ExitCode.CONFIG
    said = capsys.readouterr().err
    assert "ConfigMap cartpole-vtrace-set has 1," in said
    assert f"{LIMIT_BYTES:,}" in said
    assert "take fewer runs" in said
    assert not programs.log("helm")


def test_more_shapes_than_can_be_rendered_are_refused(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    directories = ",".join(f"gs://b/{number}" for number in range(65))
    words = ("--set", f"experiment.learner.upload={directories}", "--max-learners", "1")
    assert main(["deploy", "cartpole-vtrace", *words]) == ExitCode.CONFIG
    assert "65 shapes of runs" in capsys.readouterr().err
    assert not programs.log("helm")


def test_a_missing_right_is_told_by_verb_and_resource(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = "get deployments.apps --subresource=scale"
    denied = ["* *.*", "create roles.rbac.authorization.k8s.io", scale]
    (programs.folder / "denied").write_text("\n".join(denied) + "\n")
    assert main([*SET, "-n", "lab"]) == ExitCode.DEPLOY
    said = capsys.readouterr().err
    named = "create roles.rbac.authorization.k8s.io, get deployments.apps/scale"
    assert f"the account may not {named} in the namespace lab" in said
    assert "--set rbac.create=false" in said
    assert not programs.log("helm")
    (programs.folder / "denied").write_text("* *.*\n")
    assert main([*SET, "-n", "lab"]) == 0
    asked = {*programs.log("asked")}
    (programs.folder / "asked.log").unlink()
    assert main([*SET, "-n", "lab", "--set", "auth.existingSecret=own"]) == 0
    assert "create secrets" in programs.log("asked"), "Helm's own, whatever the controller makes"
    assert {"create secrets", "patch cronjobs.batch", "delete statefulsets.apps"} <= asked


def test_a_release_of_another_chart_is_not_replaced(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [{"name": "cartpole-vtrace", "chart": "seedbed-0.2.0"}]
    (programs.folder / "releases").write_text(json.dumps(there))
    assert main([*SET]) == ExitCode.CONFIG
    assert "is a release of the chart seedbed-0.2.0" in capsys.readouterr().err
    assert not programs.log("helm")
    there[0]["chart"] = "seedbed-set-0.2.0"
    (programs.folder / "releases").write_text(json.dumps(there))
    assert main([*SET]) == 0
    assert main(["deploy", "cartpole-vtrace"]) == ExitCode.CONFIG
    assert "is a release of the chart seedbed-set-0.2.0" in capsys.readouterr().err
    assert len(programs.log("helm")) == 1


def object_of(kind: str, name: str, chart: str, instance: str, **labels: str) -> dict[str, Any]:
    own = {"app.kubernetes.io/name": chart, "app.kubernetes.io/instance": instance, **labels}
    meta = {"name": name, "namespace": "default", "labels": own}
    return {"kind": kind, "metadata": {**meta, "annotations": BY_HELM}}


@pytest.mark.parametrize("name", ["cartpole-vtrace", "cartpole-vtrace-lr-1e-3-s2"])
def test_a_name_that_is_there_is_not_taken(
    programs: Programs, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A controller would apply the objects of its run over those of another."""
    release = object_of("ConfigMap", f"{name}-state", "seedbed", name)
    (programs.folder / "seedbed.json").write_text(json.dumps({"items": [release]}))
    assert main([*SET]) == ExitCode.CONFIG
    assert f"{name} is a release in namespace default already" in capsys.readouterr().err
    ours = {"seedbed.dev/set": "cartpole-vtrace"}
    release = object_of("ConfigMap", f"{name}-state", "seedbed", name, **ours)
    (programs.folder / "seedbed.json").write_text(json.dumps({"items": [release]}))
    assert main([*SET]) == 0, "a run of this set, which was removed and left it alone"


def test_a_set_of_plain_files_is_not_installed_over(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [*render(tmp_path, *SET).values()]
    for item in there:
        item["metadata"]["namespace"] = "default"
    (programs.folder / "seedbed-set.json").write_text(json.dumps({"items": there}))
    assert main([*SET]) == ExitCode.CONFIG
    assert "the set cartpole-vtrace in namespace default comes from plain files" in (
        capsys.readouterr().err
    )
    assert not programs.log("helm")


def of_the_set(programs: Programs, runs: dict[str, Any], **data: str) -> None:
    """Let the set be there, with such runs and such data of its state."""
    made = (("ConfigMap", "set"), ("ConfigMap", "set-state"), ("Deployment", "set"))
    spec, state, deployment = (
        object_of(kind, f"cartpole-vtrace-{end}", "seedbed-set", "cartpole-vtrace")
        for kind, end in made
    )
    deployment["status"] = {"readyReplicas": 1}
    packed = base64.b64encode(gzip.compress(json.dumps(runs).encode())).decode()
    state |= {
        "data": {"unixTime": f"{time.time():.0f}", **data},
        "binaryData": {"runs.json.gz": packed},
    }
    items = {"items": [spec, state, deployment]}
    (programs.folder / "seedbed-set.json").write_text(json.dumps(items))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "is up: its controller starts runs while there is room"),
        ({"paused": "for a talk"}, "is up: paused: for a talk"),
        (
            {"run": "refused"},
            "is up: nothing else starts: cartpole-vtrace-lr-1e-3-s1: exceeded quota: rl",
        ),
        ({"run": "finished"}, "is up: all its runs are over (1 of 1 finished)"),
        ({"endedBy": "budget.dollars: $0.01 of $0.01"}, "is up: ended by: budget.dollars"),
        ({"holds": "3 runs in a row ended alike"}, "is up: nothing else starts: 3 runs in a row"),
    ],
)
def test_what_the_set_does_is_told_when_its_controller_is_up(
    programs: Programs, capsys: pytest.CaptureFixture[str], data: dict[str, str], told: str
) -> None:
    row = {
        "refused": {"state": "waiting", "reason": "exceeded quota: rl"},
        "finished": {"state": "finished"},
        "waiting": {"state": "waiting"},
    }[data.pop("run", "waiting")]
    of_the_set(programs, {"cartpole-vtrace-lr-1e-3-s1": row}, **data)
    assert main([*SET]) == 0
    assert told in capsys.readouterr().err


def test_runs_that_a_later_command_does_not_name_are_told(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = RATES.removeprefix("experiment.")
    wanted = resolve(read_sweep("cartpole-vtrace", [rates], {"seeds": 3}), "a sweep")
    names = [run.name for run in wanted.runs]
    rows = {name: {"state": "waiting"} for name in names}
    of_the_set(programs, rows | {"of-long-ago": {"state": "finished", "digest": "0" * 16}})
    there = json.loads((programs.folder / "seedbed-set.json").read_text())
    there["items"][0]["data"] = render(tmp_path, *SET, "--seeds", "3")[
        "ConfigMap", "cartpole-vtrace-set"
    ]["data"]
    (programs.folder / "seedbed-set.json").write_text(json.dumps(there))
    capsys.readouterr()
    assert main([*SET]) == 0
    told = "beside these the set has 4 runs that this command does not name, and that go on: "
    others = [name for name in names if name.endswith("s3")]
    assert told + ", ".join([*others, "of-long-ago"]) in capsys.readouterr().err


def test_other_settings_are_refused_before_the_install(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_the_set(programs, {})
    there = json.loads((programs.folder / "seedbed-set.json").read_text())
    before = render(tmp_path, *SET)["ConfigMap", "cartpole-vtrace-set"]["data"]
    there["items"][0]["data"] = before
    (programs.folder / "seedbed-set.json").write_text(json.dumps(there))
    other = ("--set", "experiment.vtrace.entropy_cost=0.5")
    assert main([*SET, *other]) == ExitCode.RESUME_REFUSED
    said = capsys.readouterr().err
    assert "the runs of the set cartpole-vtrace have other settings" in said
    assert "vtrace.entropy_cost" in said
    assert "name another set (--name)" in said
    assert not programs.log("helm")
    # As an axis it is one that the runs of before do not have, and a later stop is theirs, too.
    as_axis = ("--set", "experiment.vtrace.entropy_cost=0.5,0.1")
    later = ("--set", "experiment.stop.env_frames=2000000")
    for words in ((), as_axis, later):
        assert main([*SET, *words]) == 0, capsys.readouterr().err


def test_a_retry_is_refused_where_no_cluster_is_changed(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SET, "--retry", "failed", "--render", str(tmp_path / "out")]) == ExitCode.USAGE
    assert "--render DIR changes no cluster" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_that_waits_in_another_set_keeps_its_name(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = gzip.compress(json.dumps({"cartpole-vtrace-s1": {"state": "waiting"}}).encode())
    spec, state = (
        object_of("ConfigMap", f"other-{end}", "seedbed-set", "other")
        for end in ("set", "set-state")
    )
    state["binaryData"] = {"runs.json.gz": base64.b64encode(runs).decode()}
    (programs.folder / "seedbed-set.json").write_text(json.dumps({"items": [spec, state]}))
    assert main([*SET]) == ExitCode.CONFIG
    assert "cartpole-vtrace-s1 is a run of the set other" in capsys.readouterr().err
    assert not programs.log("helm")


def test_the_controller_is_followed_until_it_is_ready(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "cartpole-vtrace-set-6d5f-x2x"
    for left in (programs.folder / "pods").iterdir():
        left.unlink()
    waits = pod(name, state={"waiting": {"reason": "ContainerCreating"}})
    programs.pods([], [waits], [pod(name, ready=True)])
    assert main([*SET]) == 0
    written = capsys.readouterr().err
    assert f"{name}: ContainerCreating\n" in written
    assert "cartpole-vtrace is up: its controller starts runs" in written
    for left in (programs.folder / "pods").iterdir():
        left.unlink()
    programs.pods([pod(name, state={"waiting": {"reason": "ImagePullBackOff", "message": "no"}})])
    assert main([*SET]) == ExitCode.DEPLOY
    assert "ImagePullBackOff" in capsys.readouterr().err


def test_the_controller_of_before_an_upgrade_does_not_count(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"terminated": {"exitCode": int(ExitCode.CONFIG), "reason": "Error"}}
    old, new = (pod(f"cartpole-vtrace-set-{end}", ready=True) for end in ("aaa-x", "bbb-y"))
    ends = pod("cartpole-vtrace-set-aaa-x", ready=True, lastState=failed)
    ends["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    waits = pod("cartpole-vtrace-set-bbb-y", state={"waiting": {"reason": "ContainerCreating"}})
    # The upgrade is not seen; then it is; the old pod ends, and has gone.
    programs.deployments((2, 1, 1, 1), (2, 2, 1, 0), *[(2, 2, 0, 0)] * 12, (2, 2, 1, 1))
    programs.pods([old], [old], *[[ends]] * 12, [waits, ends], [ends, new])
    assert main([*SET]) == 0
    said = capsys.readouterr().err
    assert "cartpole-vtrace-set-aaa-x: ends\n" in said
    assert "cartpole-vtrace-set-aaa-x: ready" not in said
    assert said.index("aaa-x: ends") < said.index("bbb-y: Container") < said.index("bbb-y: ready")
    assert said.index("bbb-y: ready") < said.index("cartpole-vtrace is up")


def test_a_controller_whose_volume_does_not_come_is_told_with_its_claim(
    programs: Programs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_follow, "_LONGEST_S", 0.5)
    waits = pod("cartpole-vtrace-set-6d5f-x2x")
    words = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims"
    waits["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    ]
    claim = {"name": "set", "persistentVolumeClaim": {"claimName": "cartpole-vtrace-set"}}
    waits["spec"] = {"volumes": [claim, {"name": "tmp", "emptyDir": {}}]}
    programs.pods([waits])
    assert main([*SET]) == ExitCode.DEPLOY
    said = capsys.readouterr().err
    told = f"waits for a node: {words} (it mounts the claim cartpole-vtrace-set)"
    assert f"cartpole-vtrace-set-6d5f-x2x {told}; it stays: `kubectl" in said
    waits["status"]["conditions"][0]["message"] = "0/1 nodes are available: 1 Insufficient cpu"
    programs.pods([waits])
    assert main([*SET]) == ExitCode.DEPLOY
    assert "claim cartpole-vtrace-set" not in capsys.readouterr().err


@pytest.mark.parametrize(("bound", "told"), [("0.16", "to $0.20 by the caps"), ("0.2", "")])
def test_caps_above_a_lower_bound_are_told_where_no_controller_comes(
    programs: Programs, capsys: pytest.CaptureFixture[str], bound: str, told: str
) -> None:
    ours = {"seedbed.dev/set": "cartpole-vtrace"}
    there = []
    for name in ("cartpole-vtrace-lr-1e-3-s1", "cartpole-vtrace-lr-3e-3-s1"):
        for kind, role in (("StatefulSet", "learner"), ("Deployment", "cost")):
            labels = {"app.kubernetes.io/component": role, **ours}
            item = object_of(kind, f"{name}-{role}", "seedbed", name, **labels)
            containers = [{"name": role, "args": ["--budget=0.075"]}]
            there.append({**item, "spec": {"template": {"spec": {"containers": containers}}}})
    (programs.folder / "seedbed.json").write_text(json.dumps({"items": there}))
    runs = {"cartpole-vtrace-lr-1e-2-s1": {"state": "finished", "dollars": 0.05}}
    runs |= {"cartpole-vtrace-lr-1e-3-s1": {"state": "training", "dollars": 0.07}}
    spec, state = (
        object_of("ConfigMap", f"cartpole-vtrace-{end}", "seedbed-set", "cartpole-vtrace")
        for end in ("set", "set-state")
    )
    packed = gzip.compress(json.dumps(runs).encode())
    state["binaryData"] = {"runs.json.gz": base64.b64encode(packed).decode()}
    (programs.folder / "seedbed-set.json").write_text(json.dumps({"items": [spec, state]}))
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}
    programs.pods([pod("cartpole-vtrace-set-6d5f-x2x", state=waits)])
    assert main([*SET, "--budget-dollars", bound]) == ExitCode.DEPLOY
    said = capsys.readouterr().err
    assert "ImagePullBackOff" in said
    assert ("2 awake runs of it may bring its bill" in said) == bool(told)
    assert told in said
    assert ("of $0.16 that bound it now: `seedbed stop cartpole-vtrace -n default`" in said) == (
        bool(told)
    )


@pytest.mark.slow
def test_images_are_built_for_each_shape(programs: Programs) -> None:
    backends = ("--set", "experiment.learner.backend=tensorflow,jax")
    assert main([*SET, *backends, "--registry", "reg.example/me"]) == 0
    built = " ".join(programs.log("docker"))
    assert "BACKEND=tensorflow" in built
    assert "BACKEND=jax" in built
    values = programs.values("set")
    packed = base64.b64decode(values["files"]["templates"])
    images = gzip.decompress(packed).decode()
    assert "reg.example/me/seedbed-learner:0123456789ab" in images
    assert "reg.example/me/seedbed-learner-jax:0123456789ab" in images
    assert values["image"]["repository"] == "seedbed-cost"
    assert values["image"]["tag"] == "0123456789ab"
