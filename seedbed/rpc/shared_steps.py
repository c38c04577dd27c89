"""Shared memory in which an actor of the same machine leaves the arrays of its newest step.

One step at a time is in the block, because an actor sends a step only once it has the actions for
the one before, and the learner has copied that one by then.
"""

import fcntl
import mmap
import os
from types import TracebackType
from typing import Final, Self

from seedbed.rpc.step_codec import Step

# Without it, a client that shortens the file would end the learner by SIGBUS.
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class InvalidBlock(ValueError):
    """Block, or part of it, that cannot be what an actor shares."""


class StepWriter:
    """The actor's end of a block.

    Args:
        size: bytes of a step: its observation, rewards and flags.

    Attributes:
        descriptor: descriptor of the block, for the learner.
    """

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("seedbed-step", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._memory.close()
        os.close(self.descriptor)


class StepReader:
    """The learner's end of a block.

    Args:
        descriptor: descriptor of the block, which is closed.
        most: largest size, in bytes.

    Raises:
        InvalidBlock: the block is none, is too large, or could be shortened.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        try:
            seals, size = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS), os.fstat(descriptor).st_size
            if seals & fcntl.F_SEAL_SHRINK == 0 or not 0 < size <= most:
                raise InvalidBlock(
                    f"a block of {size} bytes with seals {seals}: expected 1 to {most} bytes, and "
                    "the seal against shrinking"
                )
            self._memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        except OSError as error:
            raise InvalidBlock(f"no block of shared memory: {error}") from error
        finally:
            os.close(descriptor)

    def read(self, sizes: tuple[int, int, int]) -> tuple[bytes, bytes, bytes]:
        """Return observation, rewards and flags: copies, because numbers are judged before use.

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
        return memory[:first], memory[first:second], memory[second:end]

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
