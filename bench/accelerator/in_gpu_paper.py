"""Table 1, figures 3 and 4, and the whole runs of "Deep In-GPU Experience Replay"."""

from functools import partial
from typing import Any

from bench.accelerator.context import Context
from bench.accelerator.session import Case, Part

EXPERIMENT = "experiments/in-gpu-dqn.yaml"
PAPER_FRAMES = 8_500_000
# Its section 5, on a TITAN X: percent by which its run of 8.5 M frames was faster on the device.
PAPER_RUN_PERCENT = {32: 57.8, 128: 104.3}


def in_gpu_paper(context: Context, share: float) -> Part:
    """Return the part. The paper's own figures are beside ours, under names with `paper`."""
    sizes = context.sizes
    made_with = {
        "backend": context.backend,
        "transitions": sizes.transitions,
        "runs": sizes.runs,
        "window_s": sizes.window_s,
    }
    ask = partial(context.ask, "replay.training:Training", made_with=made_with)

    def steps(_: float, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = ask("steps", batch_size=batch)
        return found

    def insertion(_: float) -> dict[str, Any]:
        found: dict[str, Any] = ask("insertion", sizes=list(sizes.replay_sizes))
        return found

    def run(seconds: float, batch: int, storage: str) -> dict[str, Any]:
        options = {
            "learner.backend": context.backend,
            "learner.batch_size": batch,
            "learner.replay.storage": storage,
            "evaluation.at_end": "false",
            "stop.env_frames": 0,
        }
        if sizes.small_network:
            options |= {"learner.replay.capacity": 4_000, "learner.replay.min_size": 100}
        chosen = [text for name, value in options.items() for text in ("--set", f"{name}={value}")]
        window = min(sizes.melee_window_s, max(seconds - 40, 10))
        found = context.rates(EXPERIMENT, f"run-melee-{storage}-{batch}", window, *chosen)
        rate = found["env_frames_per_s"]
        return {
            "batch_size": batch,
            "storage": storage,
            **found,
            "frames_of_the_papers_run": PAPER_FRAMES,
            "derived_seconds_of_it": PAPER_FRAMES / rate if rate else None,
            "paper_percent_faster_on_device": PAPER_RUN_PERCENT.get(batch),
        }

    cases = [
        *(Case(f"step/{batch}", partial(steps, batch=batch), 30) for batch in sizes.replay_batches),
        Case("insertion", insertion, 30),
        *(
            Case(f"run/{batch}/{storage}", partial(run, batch=batch, storage=storage), 40)
            for batch in sizes.melee_batches
            for storage in ("host", "device")
        ),
    ]
    return Part("in_gpu_paper", share, cases)
