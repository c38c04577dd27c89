"""A checkpoint with a right digest and a wrong header is damaged, and the one before is taken."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.checkpoints.format import DamagedCheckpointError, decode, encode
from seedbed.checkpoints.store import CheckpointStore
from seedbed.spec import ArraySpec, EnvironmentSpec

MUTATIONS = 400
DIGEST = b'"sha256":"'
SPEC = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)
ARRAYS = {"model/a": np.arange(6, dtype=np.float32).reshape(2, 3), "model/b": np.zeros(2)}


def meta_of(updates: int) -> dict[str, Any]:
    counters = {"updates": updates, "env_frames": 80 * updates, "seconds": 1.5}
    return {"experiment": "name: x\n", "spec": SPEC.to_json(), "counters": counters}


def sealed(content: bytes) -> bytes:
    """Give a file the digest that fits its content."""
    start = content.index(DIGEST) + len(DIGEST)
    blank = content[:start] + b"0" * 64 + content[start + 64 :]
    return blank[:start] + hashlib.sha256(blank).hexdigest().encode() + blank[start + 64 :]


def crafted(header: bytes, data: bytes = bytes(40)) -> bytes:
    return sealed(len(header).to_bytes(8, "little") + header + data)


def header_of(metadata: Any = None, **tensors: Any) -> bytes:
    texts = {
        "seedbed_format": "1",
        "meta": json.dumps(meta_of(2)),
        "sha256": "0" * 64,
        **(metadata or {}),
    }
    kept = {name: text for name, text in texts.items() if text is not None}
    return json.dumps({"__metadata__": kept, **tensors}, separators=(",", ":")).encode()


def tensor(dtype: str, shape: list[int], end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def with_meta(**changes: Any) -> bytes:
    return header_of({"meta": json.dumps({**meta_of(2), **changes})})


HEADERS = {
    "not JSON": b'{"sha256":"' + b"0" * 64 + b'", }',
    "no metadata": b'{"sha256":"' + b"0" * 64 + b'"}',
    "no meta": header_of({"meta": None}),
    "format in words": header_of({"seedbed_format": "one"}),
    "meta not JSON": header_of({"meta": "{"}),
    "nested without end": header_of({"meta": 100_000 * "["}),
    "not UTF-8": header_of({"x": "?"}).replace(b"?", b"\xff"),
    "offsets past the end": header_of(a=tensor("F32", [1 << 20], 4 << 20)),
    "sizes that overflow": header_of(a=tensor("F32", [1 << 62, 1 << 62], 40)),
    "an absurd shape of nothing": header_of(a=tensor("F32", [0, 1 << 62], 0)),
    "a type that NumPy lacks": header_of(a=tensor("F8_E4M3", [40], 40)),
    "metadata of a list": header_of().replace(b'{"__metadata__":{', b'{"__metadata__":[{', 1)[:-1]
    + b"]}",
    "meta of a list": header_of({"meta": "[]"}),
    "no experiment": header_of({"meta": json.dumps({"counters": {}, "spec": SPEC.to_json()})}),
    "an experiment of a list": with_meta(experiment=[]),
    "no spec": with_meta(spec=None),
    "a negative shape": with_meta(spec={**SPEC.to_json(), "observation_shape": [-4]}),
    "an absurd observation": with_meta(spec={**SPEC.to_json(), "observation_shape": [1 << 50]}),
    "a type of objects": with_meta(spec={**SPEC.to_json(), "observation_dtype": "object"}),
    "actions in words": with_meta(spec={**SPEC.to_json(), "actions": "2"}),
    "counters of a list": with_meta(counters=[]),
    "NaN updates": with_meta(counters={"updates": float("nan")}),
    "a counter of words": with_meta(counters={"updates": "many"}),
    "a number without end": header_of({"meta": '{"counters": {"updates": ' + 9999 * "9" + "}}"}),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_wrong_header_is_damage_and_the_checkpoint_before_is_taken(
    kind: str, tmp_path: Path
) -> None:
    content = crafted(HEADERS[kind], b"" if "nothing" in kind else bytes(40))
    with pytest.raises(DamagedCheckpointError):
        decode(content)
    store = CheckpointStore(str(tmp_path))
    store.save(ARRAYS, meta_of(1), 1)
    (tmp_path / f"checkpoint-{2:012d}.safetensors").write_bytes(content)
    newest = store.newest()
    assert newest is not None
    assert newest.updates == 1


def test_mutated_files_with_a_right_digest_are_read_or_damaged() -> None:
    """Any byte of a file may be wrong: it is read, or damaged, and never anything else."""
    good = encode(ARRAYS, meta_of(1))
    end = 8 + int.from_bytes(good[:8], "little")
    generator = random.Random(7)
    damaged = 0
    for _ in range(MUTATIONS):
        content = bytearray(good)
        for _ in range(generator.choice((1, 1, 2, 8))):
            at, old = generator.randrange(end), generator.randrange(end)
            match generator.randrange(4):
                case 0:
                    content[at] = generator.randrange(256)
                case 1:
                    content[at : at + generator.randrange(1, 9)] = b""
                case 2:
                    content[at:at] = content[old : old + generator.randrange(1, 40)]
                case 3:
                    content[at : at + 1] = generator.choice((b"9" * 30, b"[", b"{", b"null", b"-"))
        try:
            decode(sealed(bytes(content)) if DIGEST in content else bytes(content))
        except DamagedCheckpointError:
            damaged += 1
    assert damaged > MUTATIONS // 2
