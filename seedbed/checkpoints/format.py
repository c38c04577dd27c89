"""Bytes of a checkpoint: one safetensors file in which damage is detected anywhere.

The header's metadata carries three texts: `seedbed_format`, `meta` (JSON) and `sha256`, which is
the digest of the whole file with its own 64 digits read as zeros. Nothing is pickled. A laptop
that fetches files and draws curves has no safetensors, which only reading and writing takes.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.packed import read_environment_spec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import EnvironmentSpec

FORMAT = 1
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_NO_DIGEST = "0" * 64
# Above any observation and any number of actions.
_LARGEST = 1 << 30


class CheckpointReadError(SeedbedError):
    """Checkpoint that cannot be read; the message says which, and what there is instead."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.CHECKPOINT_READ, message)


class DamagedCheckpointError(Exception):
    """Content that is not what was written, or not of a format that this version reads.

    A right digest is no proof, because the maker of a file can compute it. So every failure to read
    the header, the arrays or the meta is this exception.
    """


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in memory.

    Attributes:
        path: Path that it was read from.
        arrays: Parameters `model/PATH` and optimizer state `optimizer/PATH`, as `Trainer.state`
            names them.
        meta: JSON. Always `experiment` (resolved, as YAML), `spec` (`EnvironmentSpec.to_json`) and
            `counters` (`updates`, `env_frames`, `seconds`, `dollars`, ...); `random` and more are
            for the learner alone.
    """

    path: str
    arrays: dict[str, NDArray[Any]]
    meta: dict[str, Any]

    @property
    def updates(self) -> int:
        """Updates of the saved parameters; 0 where the meta does not say."""
        return int(self.meta.get("counters", {}).get("updates", 0))

    @property
    def spec(self) -> EnvironmentSpec:
        """Spec of the environment that the network was built for."""
        return read_environment_spec(self.meta["spec"])


def encode(arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]) -> bytes:
    """Encode arrays of any shape, and meta, as the bytes of one safetensors file."""
    import safetensors.numpy

    texts = {"seedbed_format": str(FORMAT), "meta": json.dumps(meta), "sha256": _NO_DIGEST}
    # safetensors takes C order only; np.ascontiguousarray would turn scalars into vectors.
    content = safetensors.numpy.save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()}, texts
    )
    start, _ = _digest_span(content)
    digest = hashlib.sha256(content).hexdigest().encode()
    return b"".join((memoryview(content)[:start], digest, memoryview(content)[start + 64 :]))


def decode(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Decode the bytes of a file into arrays and meta.

    Raises:
        DamagedCheckpointError: The bytes are not what was written; the message says why.
    """
    import safetensors.numpy

    start, header_end = _digest_span(content)
    view = memoryview(content)
    digest = hashlib.sha256(view[:start])
    digest.update(_NO_DIGEST.encode())
    digest.update(view[start + 64 :])
    written = bytes(view[start : start + 64]).decode()
    if digest.hexdigest() != written:
        raise DamagedCheckpointError(
            f"the {len(content)} bytes have the checksum {digest.hexdigest()[:12]}, but it was "
            f"written with {written[:12]}: the file was cut short or changed"
        )
    try:
        texts = json.loads(content[8:header_end])["__metadata__"]
        written_as = int(texts["seedbed_format"])
        if written_as == FORMAT:
            arrays = safetensors.numpy.load(content)
            return _finite(arrays), _checked(json.loads(texts["meta"]))
    except MemoryError:
        raise  # the file may be whole
    except DamagedCheckpointError:
        raise
    except Exception as error:
        # JSON, safetensors and NumPy raise many kinds, RecursionError among them.
        cause = f"{type(error).__name__}: {error}"
        raise DamagedCheckpointError(f"the file's header is wrong ({cause!r:.200})") from error
    raise DamagedCheckpointError(
        f"the file has format {written_as}, this version of Seedbed reads {FORMAT}"
    )


def _finite(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays, if their numbers are finite: no learner saves others.

    Raises:
        DamagedCheckpointError: An array holds NaN or infinite numbers.
    """
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DamagedCheckpointError(f"{name} holds NaN or infinite numbers")
    return arrays


def _checked(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the meta, if it has what every checkpoint has.

    Raises:
        ValueError: A part has a wrong type or an absurd size. A missing part may raise anything.
    """
    spec = read_environment_spec(meta["spec"])
    shape, dtype = spec.observation.shape, np.dtype(spec.observation.dtype)
    for size in (*shape, spec.observation.row_bytes, spec.actions, spec.action_repeat):
        if not isinstance(size, int) or not 0 < size <= _LARGEST:
            raise ValueError(f"spec has a size {size!r}")
    if dtype.kind not in "biuf":
        raise ValueError(f"spec has the type {dtype}")
    if not isinstance(meta["experiment"], str):
        raise ValueError("experiment is no text")
    for name, value in meta["counters"].items():
        if not math.isfinite(value):
            raise ValueError(f"counter {name} is {value}")
    return meta


def _digest_span(content: bytes) -> tuple[int, int]:
    """Return the offset of the digest's 64 digits, and the offset at which the header ends."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > len(content) - 8:
        raise DamagedCheckpointError(
            f"the file has {len(content)} bytes, less than the header: it was cut short or changed"
        )
    # Quotes inside other texts of the header are escaped, so this cannot match in them.
    found = _DIGEST.search(content, 8, 8 + size)
    if found is None:
        raise DamagedCheckpointError(
            "the file has no checksum: it is no checkpoint of ours, or changed"
        )
    return found.start(1), 8 + size
