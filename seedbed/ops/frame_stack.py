"""Stacks of the newest K frames, built on the device. A stack never reaches back over `first`.

A stack joins prepared frames along their last axis, oldest first; frames from before the episode
are zeros. Frames [H, W] count as [H, W, 1], so that K of them give [H, W, K]; vectors [D] give
[K * D].
"""

from keras import ops

from seedbed.types import Tensor


def stacked_shape(shape: tuple[int, ...], frame_stack: int) -> tuple[int, ...]:
    """Return the shape of a stack of prepared frames.

    Args:
        shape: of one prepared frame.
        frame_stack: K.
    """
    if not shape:
        return (frame_stack,)
    if len(shape) == 2:
        shape = (*shape, 1)
    return (*shape[:-1], shape[-1] * frame_stack)


def stack_step(frames: Tensor, first: Tensor, newest: Tensor) -> tuple[Tensor, Tensor]:
    """Stack the frames of one step of N environments.

    Args:
        frames: [N, K-1, *shape], the frames before, oldest first. Their count decides K.
        first: [N] bool, environments that start an episode: their earlier frames become zeros.
        newest: [N, *shape].

    Returns:
        The stacks [N, *stacked_shape] and the frames [N, K-1, *shape] for the next step.
    """
    history = frames.shape[1]
    if history == 0:
        return _join([newest], len(newest.shape) - 1), frames
    frames = frames * _broadcast(~first, frames)
    stacked = _join([*(frames[:, k] for k in range(history)), newest], len(newest.shape) - 1)
    return stacked, ops.concatenate([frames[:, 1:], ops.expand_dims(newest, 1)], axis=1)


def stack_unroll(frames: Tensor, first: Tensor, frame_stack: int) -> Tensor:
    """Stack the frames of an unroll's R steps.

    Args:
        frames: [K-1+R, B, *shape], time-major, with the K-1 frames before step 0.
        first: [K-1+R, B] bool.
        frame_stack: K.

    Returns:
        [R, B, *stacked_shape], the stacks that `stack_step` makes step by step.

    Raises:
        ValueError: there are fewer than K frames.
    """
    steps = frames.shape[0] - (frame_stack - 1)
    if steps < 1:
        raise ValueError(f"{frames.shape[0]} frames are too few for stacks of {frame_stack}")
    newest = frame_stack - 1
    stack = [frames[newest:]]
    visible = None
    for back in range(1, frame_stack):
        # A frame is visible while no step after it, up to this one, started an episode.
        continues = ~first[newest - back + 1 : newest - back + 1 + steps]
        visible = continues if visible is None else visible & continues
        earlier = frames[newest - back : newest - back + steps]
        stack.append(earlier * _broadcast(visible, earlier))
    return _join(stack[::-1], len(frames.shape) - 2)


def _broadcast(mask: Tensor, like: Tensor) -> Tensor:
    """Return a bool mask over the leading axes of `like` as 0 and 1 of its dtype and rank."""
    mask = ops.cast(mask, like.dtype)
    for _ in range(len(like.shape) - len(mask.shape)):
        mask = ops.expand_dims(mask, -1)
    return mask


def _join(frames: list[Tensor], rank: int) -> Tensor:
    """Join along the last axis frames of `rank` axes, not counting the leading ones."""
    if rank in (0, 2):
        return ops.stack(frames, axis=-1)
    return ops.concatenate(frames, axis=-1) if len(frames) > 1 else frames[0]
