"""Messages put together by hand are those that protobuf reads, and the other way round."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from seedbed.replay.client.sample_request import split_by_priority
from seedbed.replay.codec import chunk_of, insert_request, pack, spec_message, spec_of, unpack
from seedbed.replay.sequence import SequenceSpec
from seedbed.v1 import replay_pb2 as wire
from tests.support.replay_content import PACKED, SPEC, chunk


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 70_000])
def test_pack_is_protobuf(size: int) -> None:
    payload = np.arange(size, dtype=np.uint8)
    message = wire.InsertRequest(sequence=2**40, stream_id=3, version=2.5)
    data = b"".join(pack(message, [payload[: size // 3], payload[size // 3 :]]))
    assert wire.InsertRequest.FromString(data).payload == payload.tobytes()
    assert wire.InsertRequest.FromString(data).sequence == 2**40
    found, view = unpack(wire.InsertRequest, data)
    assert found == message
    assert bytes(view) == payload.tobytes()


def test_unpack_reads_any_order_and_unknown_fields() -> None:
    head = wire.InsertRequest(sequence=7).SerializeToString()
    tail = wire.SampleReply(
        total_priority=1.5, request=9
    ).SerializeToString()  # fields that it has not
    body = wire.InsertRequest(payload=b"abc").SerializeToString()
    found, view = unpack(wire.InsertRequest, body + head + tail[:0])
    assert (found.sequence, bytes(view)) == (7, b"abc")


@pytest.mark.parametrize("data", [b"\x7a", b"\x7a\x05ab", b"\xff" * 12, b"\x7b", b"\x0a\xff\xff"])
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(DecodeError):
        unpack(wire.InsertRequest, data)


@pytest.mark.parametrize("which", [slice(0, 5), slice(1, 3), slice(4, 5)])
def test_columns_of_a_block(which: slice) -> None:
    whole = chunk(SPEC, 3, 2, 5)
    message, payload = unpack(wire.InsertRequest, b"".join(insert_request(whole, which, 99, 4)))
    found = chunk_of(SPEC, message, payload)
    assert (found.stream_id, found.chunk_index, found.version) == (99, 2, whole.version)
    for name in ("frames", "flags", "reward", "action"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[:, which])
    for name in ("previous_action", "state", "priority"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[which])


@pytest.mark.parametrize("spec", [SPEC, PACKED], ids=["single", "packed"])
def test_numbers_that_are_judged_are_copies(spec: SequenceSpec) -> None:
    """The memory may be shared with a learner, which could change them after they were judged."""
    memory = bytearray(b"".join(insert_request(chunk(spec, 3, 2, 5), slice(0, 5), 9, 4)))
    found = vars(chunk_of(spec, *unpack(wire.InsertRequest, memory)))
    arrays = {name: one for name, one in found.items() if isinstance(one, np.ndarray)}
    before = {name: one.copy() for name, one in arrays.items()}
    memory[:] = bytes(len(memory))
    changed = {name for name in arrays if not np.array_equal(arrays[name], before[name])}
    assert changed == ({"frames"} if spec is SPEC else set()), "bytes of a picture have no judge"


@pytest.mark.parametrize("spec", [SPEC, PACKED], ids=["single", "packed"])
def test_a_spec_over_the_wire(spec: SequenceSpec) -> None:
    data = spec_message(spec).SerializeToString()
    assert spec_of(wire.SequenceSpec.FromString(data)) == spec


def test_entries_that_do_not_fill_the_row() -> None:
    message = spec_message(PACKED)
    del message.entries[-1]
    with pytest.raises(ValueError, match="entries of 38 bytes in a row of uint8"):
        spec_of(message)


@pytest.mark.parametrize("dtype", [",loat32", "(", "object", "float32,i4", "V8", "", "é"])
def test_a_dtype_that_cannot_be(dtype: str) -> None:
    """NumPy evaluates some of them, and raises SyntaxError."""
    message = spec_message(SPEC)
    message.observation.dtype = dtype
    with pytest.raises(ValueError, match="cannot be"):
        spec_of(message)


def test_shards_are_chosen_by_mass_and_the_rest_is_uniform() -> None:
    masses = np.array([0.0, 3.0, 0.0, 1.0, 0.0])
    shards, rest = split_by_priority(
        np.array([0.0, 0.375, 0.7499999, 0.75, 0.875, 1 - 1e-17]), masses
    )
    np.testing.assert_array_equal(shards, [1, 1, 1, 3, 3, 3])
    np.testing.assert_allclose(rest, [0, 0.5, 1, 0, 0.5, 1], atol=1e-6)
    assert (rest < 1).all()
