"""Video of one episode. Needs the extra `video`."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.envs.atari_exact import ExactAtariVectorEnv
from seedbed.envs.gymnasium_env import GymnasiumVectorEnv, draw_without_screen
from seedbed.evaluation.episodes import (
    EpisodeCollector,
    EvaluationSettings,
    make_evaluation_env,
)
from seedbed.evaluation.trained_policy import PolicyRunner, TrainedPolicy
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import replacing
from seedbed.runtime.shortage import cannot_write

# Pixels; a smaller screen is enlarged to about so many.
_HEIGHT = 420
_ATARI_FPS = 60
# Longest wait for the encoder to finish.
_ENCODER_S = 60.0
# Of a volume that is full: a picture is larger.
_LITTLE_BYTES = 1 << 16
# An evaluation makes fewer vector environments, so the episode has seeds of its own.
_VIDEO_ATTEMPT = 1 << 12


def record_video(
    policy: TrainedPolicy,
    experiment: Experiment,
    settings: EvaluationSettings,
    file: Path,
    closing: ExitStack,
) -> dict[str, Any]:
    """Play one more episode and write it to `file`, whole or not at all.

    Atari is played by the exact environments, because they have a screen.

    Args:
        policy: the policy that plays.
        experiment: names the environment.
        settings: how to play.
        file: the video.
        closing: closes the environment, when the video is safe.

    Raises:
        SeedbedError: ENVIRONMENT: it shows no picture. OUTPUT: the file cannot be written.
    """
    draw_without_screen()
    env = make_evaluation_env(policy, _rendered(experiment), 1, settings.seed, _VIDEO_ATTEMPT)
    closing.callback(env.close)
    assert isinstance(env, ExactAtariVectorEnv | GymnasiumVectorEnv)
    if isinstance(env, GymnasiumVectorEnv):
        fps = env.frames_per_second
    else:
        fps = _ATARI_FPS / experiment.environment.atari.frame_skip
    runner = PolicyRunner(policy, 1, settings.seed, settings.greedy)
    collector = EpisodeCollector(1, 1, settings.max_steps)
    step = env.reset()
    collector.on_step(step)
    picture = enlarge(env.rgb(0))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _writing(file, picture, fps) as write:
            while not collector.done:
                step = env.step(runner.act(step))
                collector.on_step(step)
                write(_alike(enlarge(env.rgb(0)), picture))
    except OSError as error:
        # The encoder's own error is that of a pipe.
        is_full = shutil.disk_usage(file.parent).free < _LITTLE_BYTES
        cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_full else error
        raise cannot_write(file, cause) from error
    episode = collector.ended[0]
    return {"file": str(file), "return": episode.total, "length": episode.length, "fps": fps}


@contextmanager
def _writing(
    file: Path, first: NDArray[np.uint8], fps: float
) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """Yield a function that adds a picture [H, W, 3] to a video that begins with `first`."""
    import imageio_ffmpeg

    # Otherwise imageio_ffmpeg sets a process group by a fork, in which threads of gRPC and of
    # the backend break.
    os.environ["IMAGEIO_FFMPEG_NO_PREVENT_SIGINT"] = "1"
    with replacing(file) as temporary:
        temporary.touch()  # where it cannot be written, the encoder names a pipe
        writer = imageio_ffmpeg.write_frames(
            str(temporary),
            (first.shape[1], first.shape[0]),
            fps=fps,
            macro_block_size=2,
            ffmpeg_timeout=_ENCODER_S,
        )
        writer.send(None)
        try:
            writer.send(first.tobytes())
            yield lambda picture: writer.send(picture.tobytes())
        finally:
            writer.close()
        try:  # the encoder ends alike where its last bytes found no room
            imageio_ffmpeg.count_frames_and_secs(str(temporary))
        except RuntimeError as error:
            raise OSError("the encoder has left no whole video") from error


def enlarge(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Enlarge by a whole number, which keeps pixels sharp, to even sides for codecs.

    Args:
        picture: [H, W, 3].
    """
    times = max(1, round(_HEIGHT / picture.shape[0]))
    large = picture.repeat(times, axis=0).repeat(times, axis=1)
    odd = ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0))
    return np.pad(large, odd, mode="edge")


def _alike(picture: NDArray[np.uint8], first: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture of the size of the first one, which an encoder needs.

    Raises:
        SeedbedError: ENVIRONMENT, it is of another size.
    """
    if picture.shape != first.shape:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"render() returned a picture of another size than the first one: {picture.shape[:2]} "
            f"and {first.shape[:2]} once enlarged",
        )
    return picture


def _rendered(experiment: Experiment) -> Experiment:
    """Return the experiment with environments that have a screen."""
    # Workers send no pictures.
    overrides = ["actor.workers=0"]
    if experiment.environment.family == "atari":
        overrides.append("environment.atari.preprocessing=exact")
    elif not experiment.environment.family:  # the others always have pictures
        overrides.append("environment.kwargs.render_mode=rgb_array")
    return parse_experiment(dump_experiment(experiment), overrides, "--video")
