"""The summary of a run: the one JSON object that it prints at its end."""

from typing import TYPE_CHECKING, Any

from seedbed.telemetry.counters import Counters
from seedbed.telemetry.energy import frames_per_kilojoule
from seedbed.telemetry.snapshot import take_snapshot
from seedbed.telemetry.status import plain

if TYPE_CHECKING:
    from seedbed.telemetry.telemetry import Telemetry


def summarize(telemetry: "Telemetry", counters: Counters, bottleneck: str) -> dict[str, Any]:
    """Return the object. A number is None, never 0, where there is no data.

    Args:
        telemetry: what the parts of the learner have counted.
        counters: totals of the run.
        bottleneck: the part that held the run back.
    """
    numbers = take_snapshot(telemetry, telemetry.total_counters()).numbers
    batches, envs = telemetry.inference.batch_envs.total()
    joules = telemetry.energy.totals().get("joules")
    frames = telemetry.sessions.totals()["env_frames"]
    summary = {
        **counters.to_json(),
        "env_fps": counters.env_frames / counters.seconds if counters.seconds else None,
        **{name: numbers[name] for name in _NUMBERS},
        "batch_environments": envs / batches if batches else None,
        "joules": joules,
        "energy_source": telemetry.energy.sources or None,
        # Of this process, as the joules.
        "frames_per_kilojoule": frames_per_kilojoule(frames, joules),
        "bottleneck": bottleneck,
        "evaluation": telemetry.evaluation.newest or None,
        "stop_reason": telemetry.stop_reason,
    }
    return plain(summary)  # type: ignore[no-any-return]


_NUMBERS = (
    *("mean_return", "mean_return_episodes"),
    *("policy_lag_p50", "inference_ms_p50", "inference_ms_p99", "round_trip_ms_p50"),
    *("round_trip_ms_p99", "train_step_ms_p50", "dollars_per_billion_frames"),
)
