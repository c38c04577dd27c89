"""Ends idle streams of actors, and announces late answers."""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import grpc
import grpc.aio

from seedbed.config.learner import Learner
from seedbed.rpc.streams import OpenStreams, StreamRejected
from seedbed.services.learner.sessions.stream_state import StreamState
from seedbed.v1 import inference_pb2 as wire


async def keep_house(
    settings: Learner,
    states: Callable[[], Collection[StreamState]],
    streams: OpenStreams,
    why_late: Callable[[], str],
    note: Callable[[], None],
) -> None:
    """End idle streams and announce late answers, until cancelled.

    Args:
        settings: `idle_timeout_s` and `notice_interval_s`.
        states: returns the states of the open streams.
        streams: the open streams.
        why_late: returns why answers are late.
        note: called in each round; see `Answers.note`.
    """
    interval = settings.notice_interval_s
    period = min(interval, settings.idle_timeout_s) / 4
    while True:
        began = time.perf_counter()
        await asyncio.sleep(period)
        note()
        now = time.perf_counter()
        if now - began > 2 * period:
            continue  # the event loop was held up, and what actors have sent is not read yet
        for state in list(states()):
            if state.learner_since is None:
                silent = now - state.actor_since
                if silent > settings.idle_timeout_s:
                    cause = (
                        f"nothing from the actor for {silent:.1f} s; "
                        f"learner.idle_timeout_s is {settings.idle_timeout_s:g}"
                    )
                    deadline = grpc.StatusCode.DEADLINE_EXCEEDED
                    streams.end(state.task, StreamRejected(cause, deadline))
                continue
            late = now - state.learner_since
            if (
                late >= interval
                and now - state.noticed >= interval
                and (state.notice is None or state.notice.done())
            ):
                state.noticed = now
                state.notice = asyncio.create_task(_notify(state, late, why_late()))


async def _notify(state: StreamState, late: float, reason: str) -> None:
    sequence = state.session.sequence - 1 if state.session else 0
    notice = wire.Notice(sequence=max(sequence, 0), reason=reason, waited_seconds=late)
    # If the stream has ended meanwhile, its own coroutine raises why.
    with suppress(grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
        await state.stream.send(wire.LearnerMessage(notice=notice))
