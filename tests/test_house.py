"""Rules of the house: who may import whom, and what never appears."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import yaml

from seedbed.config import yaml_text
from seedbed.runtime.exit_codes import HELP, ExitCode
from seedbed.runtime.metrics import Metric
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.services.cost.meter import CostMeter
from seedbed.services.replay.shard import Shard
from seedbed.telemetry import Counters, Telemetry
from seedbed.telemetry.checkpoints import CheckpointStats, EvaluationStats
from seedbed.telemetry.cost import RunCost
from seedbed.telemetry.gossip import GossipStats
from seedbed.telemetry.inference import InferenceStats
from seedbed.telemetry.outputs import Outputs
from seedbed.telemetry.replay import ReplaySourceStats
from seedbed.telemetry.sessions import SessionStats
from seedbed.telemetry.training import TrainingStats
from tests.support.source_imports import (
    ROOT,
    file_imports,
    imports,
    product_imports,
    product_sources,
    sources,
    tree,
    within,
)

MODELS = ("keras", "tensorflow", "jax", "jaxlib")
WORDS = {
    "models": MODELS,
    "threads": ("threading", "asyncio", "concurrent"),
    "services": ("seedbed.services",),
}
PRODUCT = ("seedbed", "services")


def read_rooms() -> dict[str, tuple[str, ...]]:
    """Return the table of docs/architecture.md: a room's path, and the modules that it must not
    import.
    """
    page = (ROOT / "docs/architecture.md").read_text()
    rooms = {}
    for path, banned in re.findall(r"^\| `([\w/.]+)` \|[^|]*\|([^|]*)\|$", page, re.MULTILINE):
        words = [word.strip() for word in banned.split(",") if word.strip()]
        rooms[path.rstrip("/")] = tuple(
            module
            for word in words
            for module in ([word.strip("`")] if word.startswith("`") else WORDS[word])
        )
    return rooms


ROOMS = read_rooms()
SERVICES_FROM = ("seedbed/cli", "seedbed/deploy", "seedbed/launch")  # and only inside a function


def files_of(room: str) -> list[str]:
    path = ROOT / room
    return [str(file.relative_to(ROOT)) for file in ([path] if path.is_file() else sources(room))]


@pytest.mark.parametrize("room", ROOMS)
def test_room_does_not_import(room: str) -> None:
    files = files_of(room)
    assert files or room == "seedbed/v1"
    below = [other for other in ROOMS if other != room and other.startswith(f"{room}/")]
    wrong = [
        str(item)
        for file in files
        if not any(file.startswith(f"{other}/") for other in below)
        for item in file_imports(file)
        if within(item.module, ROOMS[room])
    ]
    assert not wrong


def test_every_folder_is_a_room() -> None:
    found = {
        str(folder.relative_to(ROOT))
        for top in PRODUCT
        for folder in (ROOT / top).iterdir()
        if folder.is_dir() and not folder.is_symlink() and folder.name != "__pycache__"
    }
    files = {f"{top}/{path.name}" for top in PRODUCT for path in (ROOT / top).glob("*.py")}
    assert found | files - {
        "seedbed/__init__.py",
        "seedbed/__main__.py",
        "services/__init__.py",
    } == {room for room in ROOMS if room.count("/") == 1}
    parts = {
        str(folder.relative_to(ROOT))
        for folder in (ROOT / "services/learner").iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    }
    assert parts == {room for room in ROOMS if room.startswith("services/learner/")}


def test_the_library_imports_no_service() -> None:
    wrong = [
        str(item)
        for item in imports("seedbed")
        if within(item.module, ("seedbed.services",))
        and not (item.lazy and item.path.startswith(SERVICES_FROM))
    ]
    assert not wrong


def test_only_tests_and_benchmarks_reach_into_everything() -> None:
    wrong = [
        str(item)
        for top in PRODUCT
        for item in imports(top)
        if within(item.module, ("tests", "bench", "tools"))
    ]
    assert not wrong


def module_of(path: str) -> str:
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return f"seedbed.{name}" if name.startswith("services") else name


def test_no_circle() -> None:
    """Imports at the top of modules form no circle, and neither do rooms by any import."""
    modules = {module_of(file) for top in PRODUCT for file in files_of(top)}
    by_module: dict[str, set[str]] = {name: set() for name in modules}
    by_room: dict[str, set[str]] = {}
    for top in PRODUCT:
        for item in imports(top):
            target = item.module if item.module in modules else item.module.rpartition(".")[0]
            if target not in modules:
                continue
            source = module_of(item.path)
            if not item.lazy and not item.typing and source != target:
                by_module[source].add(target)
            here, there = room_of(source), room_of(target)
            if here != there:
                by_room.setdefault(here, set()).add(there)
    for graph in (by_module, by_room):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["services"] else 2])


@pytest.mark.parametrize(
    ("backend", "packages"), [("tensorflow", ("tensorflow",)), ("jax", ("jax", "jaxlib"))]
)
def test_only_its_own_files_import_the_library_of_a_backend(
    backend: str, packages: tuple[str, ...]
) -> None:
    users = {item.path for top in PRODUCT for item in imports(top) if within(item.module, packages)}
    assert f"seedbed/backends/{backend}.py" in users
    assert all(user.startswith(f"seedbed/backends/{backend}") for user in users), users


def test_actor_and_command_line_load_no_model_library() -> None:
    """The same at run time, through everything that they import."""
    light = ("seedbed/cli", "seedbed/deploy", "seedbed/rpc", "seedbed/runtime", "seedbed/config",
             "seedbed/envs", "services/actor", "services/cost", "services/replay",
             "services/sets")  # fmt: skip
    modules = [module_of(file) for room in light for file in files_of(room)]
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


@pytest.mark.parametrize("command", ["actor", "check", "config", "tokens"])
def test_commands_of_the_actors_image_import_what_it_has(command: str) -> None:
    """The image has no library that only the learner needs; `helm test` runs `check` in it."""
    program = (
        "import importlib, sys\n"
        "for name in ('tensorboardX', 'tensorflow', 'keras', 'jax', 'safetensors', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        f"importlib.import_module('seedbed.cli.{command}')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr


def test_one_import_name() -> None:
    """A bare `services` would be a second copy of every module."""
    answer = subprocess.run(
        [sys.executable, "-c", "import services"], cwd=ROOT, capture_output=True, text=True
    )
    assert answer.returncode == 1
    assert "import seedbed.services" in answer.stderr


# Each of these can run what a file or a peer sent.
UNSAFE_MODULES = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")
UNSAFE_CALLS = {"eval", "exec", "yaml.full_load", "yaml.unsafe_load"}
UNSAFE_OPTIONS = {("allow_pickle", True), ("safe_mode", False)}


# A name of seedbed/config/yaml_text.py: the safe loader of libyaml, or of Python without it.
LIBYAMLS = "_SafeLoader"


def test_the_loader_of_experiments_makes_plain_data_only() -> None:
    assert issubclass(getattr(yaml_text, LIBYAMLS), yaml.constructor.SafeConstructor)
    assert not issubclass(getattr(yaml_text, LIBYAMLS), yaml.constructor.FullConstructor)
    with pytest.raises(yaml.YAMLError):
        yaml_text.load_yaml("!!python/object/apply:os.system ['true']")


def test_nothing_runs_what_was_sent() -> None:
    wrong = [str(item) for item in product_imports() if within(item.module, UNSAFE_MODULES)]
    for path in product_sources():
        safe_loaders = {"yaml.SafeLoader"} | {
            node.name
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ClassDef)
            and [ast.unparse(base) for base in node.bases] in (["yaml.SafeLoader"], [LIBYAMLS])
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
        for path in product_sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"subprocess.Popen", "subprocess.run"}
    ]
    assert len(calls) >= 2
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
        for path in product_sources()
        for part in tree(path).body
        if path.name != "exit_codes.py" or isinstance(part, ast.ClassDef)
        for node in ast.walk(part)
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


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the public functions of a module, and the public methods of its public classes."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inherits = "override" in map(ast.unparse, node.decorator_list)
            if not (node.name.startswith("_") or inherits):
                yield node


def takes_arrays(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    annotations = (a.annotation for a in (*function.args.args, *function.args.kwonlyargs))
    return any(a and re.search("NDArray|ArrayLike", ast.unparse(a)) for a in annotations)


def test_a_public_function_that_takes_arrays_states_their_shapes() -> None:
    without = [
        f"{path.relative_to(ROOT)}: {function.name}"
        for path in product_sources()
        if path.relative_to(ROOT).parts[0] in PRODUCT
        for function in public_functions(tree(path).body)
        if takes_arrays(function) and not re.search(r"\[|shape", ast.get_docstring(function) or "")
    ]
    assert without == []


def test_no_file_is_in_the_repository_twice() -> None:
    """One copy is kept, and whatever needs another one reads it or builds it."""
    answer = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths: dict[str, list[str]] = {}
    for line in answer.stdout.splitlines():
        blob, path = line.split()[1], line.partition("\t")[2]
        if (ROOT / path).is_file() and (ROOT / path).stat().st_size:
            paths.setdefault(blob, []).append(path)
    assert not [same for same in paths.values() if len(same) > 1]


@pytest.mark.parametrize(
    ("page", "heading", "most"),
    [
        ("docs/performance.md", "# Performance", 200),
        ("CHANGELOG.md", "## Unreleased (0.2.0)", 150),
    ],
)
def test_pages_for_readers_stay_short(page: str, heading: str, most: int) -> None:
    """A page of figures, and what changed for a user: neither is a diary."""
    level = heading.partition(" ")[0]
    _, found, text = (ROOT / page).read_text().partition(f"{heading}\n")
    assert found
    assert len(re.split(rf"^{level} ", text, flags=re.MULTILINE)[0].splitlines()) < most


EXPORTERS: tuple[Any, ...] = (
    ActorMetrics, CheckpointStats, CostMeter, Counters, EvaluationStats, GossipStats,
    InferenceStats, Outputs, ReplaySourceStats, RunCost, SessionStats, Shard, Telemetry,
    TrainingStats,
)  # fmt: skip
MUTATORS = {"observe", "observe_many", "extend", "append", "add", "update", "discard"}


def names_in(code: CodeType) -> set[str]:
    """All attribute and global names of a function, inner functions included."""
    inner = [names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names, *(name for names in inner for name in names)}


def attributes_of(metric: Metric, exporter: Any, attributes: set[str]) -> set[str]:
    """The attributes of an exporter that a metric reads, also through its methods."""
    todo, seen = {metric.read.partition(".")[0]}, set[str]()
    while todo:
        name = todo.pop()
        seen.add(name)
        member = inspect.getattr_static(exporter, name, None)
        member = member.fget if isinstance(member, property) else member
        if inspect.isfunction(member):
            todo |= names_in(member.__code__) - seen
    return seen & attributes


def is_local(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id.islower() and not hasattr(builtins, node.id)


class Writes(ast.NodeVisitor):
    """Attributes that a module writes, each with the function that does; and all names it uses.

    A first value in `__init__` is no write, unless it comes from outside.
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self.used: set[str] = set()
        self._function = ""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._function = self._function, node.name
        self.generic_visit(node)
        self._function = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def _write(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple):
            for item in target.elts:
                self._write(item, value)
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute):
            is_first = isinstance(value, ast.Constant | ast.Dict) or (
                isinstance(value, ast.Call) and not any(map(is_local, ast.walk(value)))
            )
            if self._function != "__init__" or not is_first:
                self.written.append((target.attr, self._function))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._write(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._write(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._write(node.target, None)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            self._write(node.func.value, None)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.used.add(node.attr)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.used.add(node.id)


def test_every_metric_is_written() -> None:
    """Each attribute that a metric reads is written by a function that something else uses."""
    writes = Writes()
    for path in product_sources():
        writes.visit(tree(path))
    attributes = {
        name.attr
        for path in product_sources()
        for name in ast.walk(tree(path))
        if isinstance(name, ast.Attribute) and ast.unparse(name.value) == "self"
    } | set(Counters.__dataclass_fields__ | GossipStats.__dataclass_fields__)
    functions = {
        node.name
        for path in product_sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    live = {name for name, function in writes.written if function in {*writes.used, "__init__"}}
    never = [
        f"{metric.name}: {attribute}"
        for exporter in EXPORTERS
        for metric in exporter.METRICS
        for attribute in attributes_of(metric, exporter, attributes)
        if attribute not in live | functions
    ]
    assert not never


@pytest.mark.parametrize("metric", [m for exporter in EXPORTERS for m in exporter.METRICS],
                         ids=lambda metric: metric.name)  # fmt: skip
def test_help_of_a_metric_stands_alone(metric: Metric) -> None:
    """Prometheus shows one HELP string at a time."""
    assert re.match(r"[A-Z]\w+ ?", metric.help)
    assert metric.help.endswith(".")
    assert not re.search(r"\b(those|their|likewise|it)\b", metric.help, re.IGNORECASE)


# Words that only authors of Seedbed used; docs/glossary.md has those of today.
PRIVATE = {
    *("ball", "beat", "beats", "bequeath", "die", "dies", "farewell", "greet", "greeting", "heir"),
    *("home", "homes", "homeless", "hurry", "impatient", "inbox", "look", "looks", "mailbox"),
    *("nobody", "outbox", "pictures", "said", "saver", "say", "says", "somebody", "stagger"),
    *("staggered", "stay", "stranger", "team", "whoever"),
}
WORD = re.compile(r"[A-Z]?[a-z]+")


def names(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every name that a file defines or uses, with its line."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name, node.lineno


def test_private_words_do_not_come_back() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in product_sources()
        for name, line in names(path)
        if PRIVATE & {word.lower() for word in WORD.findall(name)}
    ]
    assert not wrong, "docs/glossary.md has the word for it"
