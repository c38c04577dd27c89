"""Shared memory of a local stream: a file without a name, which the client makes.

The client passes the descriptor to the server with the first packet. The seals keep a client from
shortening the file, which would end the server by SIGBUS.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.rpc.local.packets import InvalidBlock
from seedbed.rpc.step_codec import Step

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Block:
    """The client's end of shared memory.

    Args:
        size: bytes.
        reserve: take the memory now, so that no write of either side finds none.

    Attributes:
        descriptor: descriptor of the memory, for the server.

    Raises:
        OSError: the system has no such memory, or not so much.
    """

    def __init__(self, size: int, reserve: bool = False) -> None:
        self.descriptor = os.memfd_create("seedbed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            if reserve:
                os.posix_fallocate(self.descriptor, 0, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._release()
        os.close(self.descriptor)

    def _release(self) -> None:
        _unmap(self._memory)


class OpenedBlock:
    """The server's end of shared memory.

    Args:
        descriptor: descriptor of the memory, which is closed.
        most: largest size, in bytes.
        access: `mmap.PROT_READ`, with `mmap.PROT_WRITE` where the server writes too.

    Raises:
        InvalidBlock: the memory is none, is too large, or could be shortened.
    """

    def __init__(self, descriptor: int, most: int, access: int = mmap.PROT_READ) -> None:
        try:
            seals, size = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS), os.fstat(descriptor).st_size
            if seals & fcntl.F_SEAL_SHRINK == 0 or not 0 < size <= most:
                raise InvalidBlock(
                    f"a block of {size} bytes with seals {seals}: expected 1 to {most} bytes, and "
                    "the seal against shrinking"
                )
            self._memory = mmap.mmap(descriptor, size, prot=access)
        except OSError as error:
            raise InvalidBlock(f"no block of shared memory: {error}") from error
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release the memory."""
        _unmap(self._memory)


def _unmap(memory: mmap.mmap) -> None:
    """Release memory now, or with the last array that is a view of it."""
    try:
        memory.close()
    except BufferError:
        return


class StepWriter(Block):
    """Memory in which an actor leaves the arrays of its newest step.

    One step at a time is there, because an actor sends a step only once it has the actions for the
    one before, and the learner has copied that one by then.
    """

    def write(self, step: Step) -> tuple[int, int, int]:
        """Write the arrays of a step one after the other, and return the bytes of each.

        Raises:
            InvalidBlock: the block is smaller.
        """
        sizes, at = [], 0
        for part in (step.observation, step.reward, step.flags):
            size = len(part)
            if at + size > len(self._memory):
                raise InvalidBlock(f"a step above {at + size} bytes, and {len(self._memory)} fit")
            self._memory[at : at + size] = part
            sizes.append(size)
            at += size
        return sizes[0], sizes[1], sizes[2]


class StepReader(OpenedBlock):
    """The learner's end of a `StepWriter`.

    Args:
        descriptor: as of `OpenedBlock`.
        most: as of `OpenedBlock`.

    Raises:
        InvalidBlock: as of `OpenedBlock`.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        super().__init__(descriptor, most)
        self._newest = memoryview(b"")  # observation that was read last

    @override
    def close(self) -> None:
        """Release the memory, and the newest observation, which a failure may keep."""
        with contextlib.suppress(BufferError):  # an array of a failure keeps it too
            self._newest.release()
        super().close()

    def read(self, sizes: tuple[int, int, int]) -> tuple[memoryview, bytes, bytes]:
        """Return observation, rewards and flags.

        The observation is a view, valid until the actions for the step are sent, or `close`. The
        others are copies, because numbers are judged before use.

        Args:
            sizes: bytes of each.

        Raises:
            InvalidBlock: the block is smaller.
        """
        memory = self._memory
        first, second = sizes[0], sizes[0] + sizes[1]
        end = second + sizes[2]
        if end > len(memory):
            raise InvalidBlock(f"a step of {end} bytes in a block of {len(memory)}")
        self._newest = memoryview(memory)[:first]
        return self._newest, memory[first:second], memory[second:end]


class MessageBlock(Block):
    """Memory of whole messages, in slots of one size, that the client lends to the server.

    Args:
        slots: number of slots.
        slot_bytes: bytes of each.
    """

    def __init__(self, slots: int, slot_bytes: int) -> None:
        super().__init__(slots * slot_bytes, reserve=True)
        self.slot_bytes = slot_bytes
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)

    @override
    def _release(self) -> None:
        del self._bytes
        super()._release()
        del self._memory  # otherwise kept for as long as the stream, with arrays that are not

    def slot(self, index: int) -> NDArray[np.uint8]:
        """Return a slot."""
        return self._bytes[index * self.slot_bytes : (index + 1) * self.slot_bytes]


class OpenedMessageBlock(OpenedBlock):
    """The server's end of a `MessageBlock`, which it reads and writes."""

    def __init__(self, descriptor: int, most: int) -> None:
        super().__init__(descriptor, most, mmap.PROT_READ | mmap.PROT_WRITE)
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)

    @override
    def close(self) -> None:
        """Release the memory, or let the last array that is a view of it release it."""
        del self._bytes
        super().close()
        del self._memory

    def part(self, offset: int, size: int) -> NDArray[np.uint8]:
        """Return a part.

        Raises:
            InvalidBlock: the block is smaller.
        """
        if offset + size > len(self._bytes):
            raise InvalidBlock(f"{size} bytes at {offset} of a block of {len(self._bytes)} bytes")
        return self._bytes[offset : offset + size]


def copy_pieces(pieces: Iterable[Any], into: NDArray[np.uint8]) -> int:
    """Copy pieces one after the other, without the interpreter's lock; return their bytes.

    Args:
        pieces: bytes, or contiguous arrays.
        into: memory [bytes] of the copy.

    Raises:
        InvalidBlock: the memory is smaller.
    """
    at = 0
    for piece in pieces:
        source = np.frombuffer(piece, np.uint8)
        if at + len(source) > len(into):
            raise InvalidBlock(f"a message above {at + len(source)} bytes, and {len(into)} fit")
        into[at : at + len(source)] = source
        at += len(source)
    return at
