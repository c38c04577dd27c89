"""One episode as a video. Needs the extra `video`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment
from seedbed.envs.atari_exact import ExactAtariVectorEnv
from seedbed.envs.gymnasium_env import GymnasiumVectorEnv
from seedbed.evaluation.play import Policy, Settings, Tally, make
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import replacing

_HEIGHT = 420  # pixels that a small screen is enlarged to, about
_ATARI_FPS = 60
_ENCODER_S = 60.0  # longest wait for the encoder to finish

Screen = Callable[[], NDArray[np.uint8]]


def check_video(file: Path) -> None:
    """Fail now rather than after the evaluation.

    Raises:
        SeedbedError: USAGE, when the extra is missing or the name is no video's.
    """
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise SeedbedError(
            ExitCode.USAGE,
            f"--video needs the extra `video` ({error}): pip install seedbed[video]",
        ) from error
    if file.suffix != ".mp4":
        raise SeedbedError(ExitCode.USAGE, f"--video {file}: the name must end in .mp4")


def film(policy: Policy, experiment: Experiment, settings: Settings, file: Path) -> dict[str, Any]:
    """Play one more episode and write it to `file`, whole or not at all.

    Atari is played by the exact environments, which show their screen.

    Raises:
        SeedbedError: the environment shows no picture.
    """
    import imageio_ffmpeg

    group = make(policy, _filmed(experiment), 1, settings.seed, round_=1 << 12)
    try:
        screen, fps = _screen(group, experiment)
        player = policy.player(1, settings.seed, settings.greedy)
        tally = Tally(1, 1, settings.max_steps)
        frame = group.reset()
        tally.take(frame)
        file.parent.mkdir(parents=True, exist_ok=True)
        picture = enlarge(screen())
        # It would set a process group by fork, in which threads of gRPC and of the backend break.
        os.environ["IMAGEIO_FFMPEG_NO_PREVENT_SIGINT"] = "1"
        with replacing(file) as temporary:
            writer = imageio_ffmpeg.write_frames(
                str(temporary),
                (picture.shape[1], picture.shape[0]),
                fps=fps,
                macro_block_size=2,
                ffmpeg_timeout=_ENCODER_S,
            )
            writer.send(None)
            try:
                writer.send(picture.tobytes())
                while not tally.done:
                    frame = group.step(player.act(frame))
                    tally.take(frame)
                    writer.send(enlarge(screen()).tobytes())
            finally:
                writer.close()
    finally:
        group.close()
    episode = tally.ended[0]
    return {"file": str(file), "return": episode.total, "length": episode.length, "fps": fps}


def enlarge(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[H, W, 3] times a whole number, so that pixels stay sharp; even sides, as codecs want."""
    times = max(1, round(_HEIGHT / picture.shape[0]))
    large = picture.repeat(times, axis=0).repeat(times, axis=1)
    odd = ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0))
    return np.pad(large, odd, mode="edge")


def _filmed(experiment: Experiment) -> Experiment:
    """The experiment with environments that show what they do."""
    environment = experiment.environment
    if environment.id.startswith("atari:"):
        atari = environment.atari.model_copy(update={"preprocessing": "exact"})
        environment = environment.model_copy(update={"atari": atari})
    else:
        kwargs = {**environment.kwargs, "render_mode": "rgb_array"}
        environment = environment.model_copy(update={"kwargs": kwargs})
    return experiment.model_copy(update={"environment": environment})


def _screen(group: object, experiment: Experiment) -> tuple[Screen, float]:
    if isinstance(group, ExactAtariVectorEnv):
        return lambda: group.rgb(0), _ATARI_FPS / experiment.environment.atari.frame_skip
    assert isinstance(group, GymnasiumVectorEnv)
    return lambda: group.rgb(0), group.frames_per_second
