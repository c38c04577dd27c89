"""Chunks on their way to shards: which shard stores which environments."""

import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes, insert_request
from seedbed.replay.sequence import SequenceChunk, SequenceSpec


@dataclass(eq=False)
class PendingInsert:
    """Some environments of a chunk, on their way to a shard."""

    chunk: SequenceChunk
    envs: slice
    stream_id: int  # of these environments
    preferred_shard: int
    size_bytes: int
    since: float = field(default_factory=time.monotonic)

    @property
    def sequences(self) -> int:
        """Return the number of sequences of the insert."""
        return int(self.envs.stop - self.envs.start)

    def message(self, number: int) -> list[Any]:
        """Serialize the insert; return the pieces.

        Args:
            number: Sequence number of the message in its stream.
        """
        return insert_request(self.chunk, self.envs, self.stream_id, number)


class ChunkSplitter:
    """Division of chunks among shards. The same stream always goes to the same shards."""

    def __init__(self, spec: SequenceSpec, shards: int) -> None:
        self._shards = shards
        self._env_bytes = chunk_bytes(spec)
        self._envs_a_message = max(1, MESSAGE_BYTES // self._env_bytes)
        # Streams of another learner get other ids on the same shard.
        self._salt = secrets.token_bytes(16)

    def split(self, chunk: SequenceChunk) -> list[PendingInsert]:
        """Split a chunk into messages, and choose the preferred shard of each.

        Args:
            chunk: The chunk; equal stream ids and environments give equal inserts.
        """
        inserts = []
        shards, envs = self._shards, chunk.environments
        offset = self._hash(chunk.stream_id) % shards
        for part in range(shards):
            start, end = envs * part // shards, envs * (part + 1) // shards
            for first in range(start, end, self._envs_a_message):
                stop = min(first + self._envs_a_message, end)
                inserts.append(
                    PendingInsert(
                        chunk,
                        slice(first, stop),
                        stream_id=self._hash(chunk.stream_id, first, envs),
                        preferred_shard=(offset + part) % shards,
                        size_bytes=self._env_bytes * (stop - first),
                    )
                )
        return inserts

    def _hash(self, *numbers: int) -> int:
        """Return a number below 2^63 that other numbers hardly ever have."""
        data = b"".join(number.to_bytes(8, "little") for number in numbers)
        digest = hashlib.blake2b(data, digest_size=8, key=self._salt).digest()
        return int.from_bytes(digest, "little") >> 1
