"""The code that trains the runs of a set: a run under other code would be another experiment."""

import hashlib
import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path

from seedbed.config import Experiment
from seedbed.runs.history import checkout_digest
from seedbed.runs.trust import named_code
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import atomic_write

# Name of what code is made of, and its digest.
Code = dict[str, str]


def code_of(experiments: Iterable[Experiment]) -> Code:
    """Return Seedbed's commit with its changes, and the files of the modules that settings name.

    A module that is not there is left out: the run itself refuses it.
    """
    modules = {
        name.partition(":")[0] for experiment in experiments for _, name in named_code(experiment)
    }
    found = {"seedbed": checkout_digest()}
    for module in sorted(modules):
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            found[module] = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:12]
    return found


def _file(folder: Path) -> Path:
    return folder / "set" / "code.json"


def _read(folder: Path) -> list[Code]:
    """Return the codes of a set, the newest one last."""
    if not _file(folder).exists():
        return []
    try:
        return [dict(code) for code in json.loads(_file(folder).read_text())]
    except (OSError, ValueError, TypeError) as error:
        raise RunDirectoryError(
            f"{_file(folder)} cannot be read ({error}): delete it, and the set takes today's code"
        ) from error


def check_code(folder: Path, code: Code, accepts_other: bool, is_kept: bool = True) -> None:
    """Keep the code of a set when it is first used; refuse other code later.

    Args:
        folder: The folder of the set.
        code: Today's, of some of its runs at least.
        accepts_other: Take other code, and keep apart the runs that begin under it.
        is_kept: Write what is new; False only refuses.

    Raises:
        SeedbedError: RESUME_REFUSED, the code is another one, with what differs; RUN_DIRECTORY, the
            file is damaged or cannot be written.
    """
    codes = _read(folder)
    kept = codes[-1] if codes else {}
    changed = [name for name in sorted(kept) if code.get(name, kept[name]) != kept[name]]
    if changed and not accepts_other:
        lines = [f"  {name}: {kept[name]} -> {code[name]}" for name in changed]
        lines.insert(0, f"the runs of {folder} were trained by other code:")
        lines.append(
            "go back to that code, begin another set (--out), or say --other-code: runs that begin "
            "from now on are then compared apart"
        )
        raise SeedbedError(ExitCode.RESUME_REFUSED, "\n".join(lines))
    whole = {**kept, **code}
    if whole != kept and is_kept:
        codes = [*codes, whole] if changed or not codes else [*codes[:-1], whole]
        _write(_file(folder), json.dumps(codes, indent=1) + "\n")


def note_begin(folder: Path, name: str) -> None:
    """Record under which code a run begins; one that has begun keeps its own.

    Raises:
        SeedbedError: RUN_DIRECTORY, the file cannot be written.
    """
    file = _note(folder, name)
    if not file.exists():
        _write(file, f"{len(_read(folder))}\n")


def note_lone_begin(file: Path, experiment: Experiment) -> None:
    """Record under which code a run of a set begins that no driver of the set starts.

    Args:
        file: File of an experiment, of a set or not.
        experiment: Its settings.

    Raises:
        SeedbedError: RESUME_REFUSED, the set has other code.
    """
    folder = file.parent
    if (folder / "set" / "code.json").exists() and not _note(folder, file.stem).exists():
        check_code(folder, code_of([experiment]), False, is_kept=False)
        note_begin(folder, file.stem)


def _note(folder: Path, name: str) -> Path:
    return folder / "set" / "code" / name


def code_names(folder: Path) -> dict[str, str]:
    """Return which code each run has begun under; empty where a set has had one code."""
    count = len(_read(folder))
    files = (folder / "set" / "code").glob("*") if count > 1 else ()
    return {file.name: f"{file.read_text().strip()} of {count}" for file in files}


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, text)
    except OSError as error:
        raise RunDirectoryError(f"cannot write {file}: {error}") from error
