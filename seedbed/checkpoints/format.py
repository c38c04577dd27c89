"""Bytes of a checkpoint: one safetensors file in which damage is detected anywhere.

The header's metadata carries three texts: `seedbed_format`, `meta` (JSON) and `sha256`, which is
the digest of the whole file with its own 64 digits read as zeros. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import EnvironmentSpec

FORMAT = 1
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_NO_DIGEST = "0" * 64


class CheckpointReadError(SeedbedError):
    """Checkpoint that cannot be read; the message says which, and what there is instead."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.CHECKPOINT_READ, message)


class DamagedCheckpointError(Exception):
    """Content that is not what was written, or not of a format that this version reads."""


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
        return EnvironmentSpec.from_json(self.meta["spec"])


def encode(arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]) -> bytes:
    """Encode a checkpoint as the bytes of one safetensors file."""
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
    texts = json.loads(content[8:header_end])["__metadata__"]
    if int(texts["seedbed_format"]) != FORMAT:
        raise DamagedCheckpointError(
            f"the file has format {texts['seedbed_format']}, this version of Seedbed reads {FORMAT}"
        )
    return dict(safetensors.numpy.load(content)), json.loads(texts["meta"])


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
