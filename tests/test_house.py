"""Rules of the house: who may import whom, and what never appears."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest

from services.common.exit_codes import HELP, ExitCode
from tests.source_imports import ROOT, imports, sources, tree, within

MODELS = ("keras", "tensorflow", "jax", "jaxlib")
SERVICES = tuple(f"services.{room}" for room in ("actor", "cli", "cost", "learner", "replay"))

# A room, and what it must not know about. The table is docs/architecture.md's.
ROOMS = {
    "services/actor": (*MODELS, *(room for room in SERVICES if room != "services.actor")),
    "services/cost": (*MODELS, *(room for room in SERVICES if room != "services.cost")),
    "services/replay": (*MODELS, *(room for room in SERVICES if room != "services.replay")),
    "services/common": (*MODELS, *SERVICES),
    "services/learner/agents": ("grpc", "threading", "asyncio", "pathlib", "os", "fsspec"),
    "services/learner/networks": ("grpc", "threading", "asyncio", "services.learner.agents"),
    "services/learner/ops": ("grpc", "threading", "asyncio", "services.common.config"),
    "services/learner/ball": (*MODELS, "grpc", "threading", "asyncio", "services.wire"),
    "services/learner/backend": ("grpc", "services.learner.agents", "services.wire"),
}


@pytest.mark.parametrize("room", ROOMS)
def test_room_does_not_know(room: str) -> None:
    assert sources(room)
    wrong = [str(item) for item in imports(room) if within(item.module, ROOMS[room])]
    assert not wrong


def test_every_room_has_a_rule() -> None:
    rooms = {f"services/{path.parent.name}" for path in (ROOT / "services").glob("*/__init__.py")}
    # The command line is where everything meets; the learner has a rule for each part.
    assert rooms - {"services/cli", "services/learner", "services/wire"} <= ROOMS.keys()


@pytest.mark.parametrize(
    ("backend", "packages"), [("tensorflow", ("tensorflow",)), ("jax", ("jax", "jaxlib"))]
)
def test_one_file_imports_the_backend(backend: str, packages: tuple[str, ...]) -> None:
    home = f"services/learner/backend/{backend}.py"
    users = {item.path for item in imports("services") if within(item.module, packages)}
    assert users == {home}


def test_actor_and_command_line_load_no_model_library() -> None:
    """The same at run time, through everything that they import."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for folder in ("actor", "cli", "common", "cost", "replay")
        for path in sources(f"services/{folder}")
    ]
    program = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {MODELS!r} if name in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == []


# Each of these can run what a file or a peer sent.
UNSAFE_MODULES = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")
UNSAFE_CALLS = {"eval", "exec", "yaml.full_load", "yaml.unsafe_load"}
UNSAFE_OPTIONS = {("allow_pickle", True), ("safe_mode", False)}


def test_nothing_runs_what_was_sent() -> None:
    wrong = [str(item) for item in imports("services") if within(item.module, UNSAFE_MODULES)]
    for path in sources("services"):
        safe_loaders = {"yaml.SafeLoader"} | {
            node.name
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ClassDef)
            and [ast.unparse(base) for base in node.bases] == ["yaml.SafeLoader"]
        }
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            options = {(item.arg, getattr(item.value, "value", None)) for item in node.keywords}
            given = {
                ast.unparse(value) for value in (*node.args, *(k.value for k in node.keywords))
            }
            if (
                name in UNSAFE_CALLS
                or options & UNSAFE_OPTIONS
                or (name == "yaml.load" and not given & safe_loaders)
            ):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong


def test_every_process_is_given_its_environment_and_none_is_forked() -> None:
    """Or it starts with whatever another thread is making of `environ` just then, if it starts;
    and a fork, which `preexec_fn` makes, breaks gRPC's threads.
    """
    calls = [
        (path, node, {item.arg for item in node.keywords})
        for path in sources("services")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"subprocess.Popen", "subprocess.run"}
    ]
    assert len(calls) >= 5
    wrong = [
        f"{path}:{node.lineno}"
        for path, node, options in calls
        if "env" not in options or "preexec_fn" in options
    ]
    assert not wrong


def test_every_exit_code_has_help_and_a_use() -> None:
    assert set(HELP) == set(ExitCode)
    used = {
        node.attr
        for path in sources("services")
        if path.name != "exit_codes.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ExitCode"
    }
    assert {code.name for code in ExitCode} - used == set(), "codes that nothing ends with"


def tracked() -> list[str]:
    answer = subprocess.run(
        # The checkout may be another user's, as in a container.
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


# Written so that this file does not hold them. People choose their own package index.
MACHINE = re.compile(
    r"(?<![\w.-])/(?:work|root|home)/"  # a folder of whoever wrote it
    r"|/t" r"mp/(?!seedbed)"  # examples say /tmp/seedbed...
    r"|py" r"pi\.org|python" r"hosted\.org|(?:extra-)?index-" r"url|trusted-" r"host",
    re.IGNORECASE,
)  # fmt: skip


def test_nothing_names_a_machine_or_a_registry() -> None:
    wrong = []
    for name in tracked():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue  # a picture
        wrong += [
            f"{name}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE.search(line)
        ]
    assert not wrong
