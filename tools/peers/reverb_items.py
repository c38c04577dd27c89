"""Measure a server of Reverb: items a second in and out, as one line of JSON.

Usage: reverb_items.py sequences|transitions SECONDS

One process serves, another one writes and then draws. Sequences are 120 frames of 84 x 84 random
bytes with their actions, rewards and the state of an LSTM, appended whole (frame by frame is 3 to 9
times slower), drawn in batches of 64; transitions are 57 floats, drawn in batches of 256.
"""

import json
import multiprocessing
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

TABLE, STEPS = "items", 120
# Capacity, items that may wait to be stored, and items of a batch.
SIZES = {"sequences": (1024, 8, 64), "transitions": (65536, 32, 256)}
EXAMPLES = 64


def make_items(kind: str) -> list[dict[str, np.ndarray]]:
    """Return items of random numbers."""
    random = np.random.default_rng(0)
    if kind == "transitions":
        return [{"x": random.random(57, np.float32)} for _ in range(EXAMPLES)]
    return [
        {
            "frames": random.integers(0, 256, (STEPS, 84, 84), np.uint8),
            "action": np.zeros(STEPS, np.int32),
            "reward": random.random(STEPS, np.float32),
            "done": np.zeros(STEPS, bool),
            "state": random.random((2, 512), np.float32),
        }
        for _ in range(EXAMPLES)
    ]


def serve(kind: str, port: Any) -> None:
    """Serve one prioritized table until killed."""
    import reverb
    import tensorflow as tf

    signature = {
        name: tf.TensorSpec([1, *array.shape], tf.as_dtype(array.dtype))
        for name, array in make_items(kind)[0].items()
    }
    table = reverb.Table(
        TABLE,
        reverb.selectors.Prioritized(0.9),
        reverb.selectors.Fifo(),
        SIZES[kind][0],
        reverb.rate_limiters.MinSize(1),
        signature=signature,
    )
    server = reverb.Server([table])
    port.put(server.port)
    server.wait()


def write(client: Any, kind: str, seconds: float) -> float:
    """Return the items a second that are stored."""
    items, (_, waiting, _) = make_items(kind), SIZES[kind]
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            writer.append(items[count % EXAMPLES])
            writer.create_item(
                TABLE, 1.0 + count % 7, {k: v[-1:] for k, v in writer.history.items()}
            )
            count += 1
            if kind == "sequences" or count % waiting == 0:
                writer.flush(block_until_num_items=waiting)
        writer.flush()
    return count / (time.perf_counter() - start)


def draw(address: str, kind: str, seconds: float) -> float:
    """Return the items a second that come in batches."""
    import reverb
    import tensorflow as tf

    batch = SIZES[kind][2]
    tf.config.threading.set_intra_op_parallelism_threads(2)
    data = reverb.TrajectoryDataset.from_table_signature(
        address, TABLE, max_in_flight_samples_per_worker=2 * batch
    )
    batches = data.batch(batch, drop_remainder=True).prefetch(2).as_numpy_iterator()
    for _ in range(3):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        next(batches)
        count += batch
    return count / (time.perf_counter() - start)


def main(kind: str, seconds: float) -> None:
    """Measure, and print."""
    import reverb

    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    server = context.Process(target=serve, args=(kind, port), daemon=True)
    server.start()
    address = f"localhost:{port.get(timeout=120)}"
    client = reverb.Client(address)
    write(client, kind, seconds)  # every page once
    stored = write(client, kind, seconds)
    drawn = draw(address, kind, seconds)
    print(json.dumps({"insert_per_s": stored, "sample_per_s": drawn}), flush=True)
    server.kill()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
