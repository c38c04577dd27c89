"""The dashboards, as code: `python tools/dashboard.py` writes them into the chart
`seedbed-platform`.

One is for all experiments, one for sets of runs (`tools/dashboard_sets.py`). With `--check` it
writes nothing and fails where a committed file is not what this says. Every series has the labels
`namespace` and `experiment`, from the chart's monitors or the relabelings in `k8s/prometheus.yaml`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tools.dashboard_panels import (
    by_experiment,
    graph,
    labels_variable,
    laid_out,
    mean,
    metric,
    named,
    only_where,
    panel,
    percentile,
    rate,
    stat,
)
from tools.dashboard_sets import sets_dashboard
from tools.generated import write_or_check

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "helm" / "seedbed-platform" / "files" / "dashboard.json"
SETS_FILE = FILE.with_name("dashboard-sets.json")


def gossip() -> list[dict[str, Any]]:
    """What several learners exchange, by the pod that says it."""

    def now(name: str, also: str = "pod", function: str = "max") -> str:
        return by_experiment(function, f"seedbed_gossip_{name}", "", also)

    def grown(name: str) -> str:
        return rate(f"seedbed_gossip_{name}", "pod")

    return [
        graph("Gossip: distance to peers", {
            "{{experiment}} {{pod}} to {{peer}}": now("distance", "pod, peer"),
            "{{experiment}} {{pod}} update": now("update_norm"),
        }, "short", "2-norm between a learner's parameters and the newest ones of a peer; and of "
           "what one update adds."),
        graph("Gossip: mixes a second", {
            "{{experiment}} {{pod}}": grown("mixes_total"),
            "{{experiment}} {{pod}} superseded": grown("superseded_total"),
        }, "short", "Superseded messages were replaced by a newer one of the same peer."),
        graph("Gossip: staleness", {
            "{{experiment}} {{pod}} of {{peer}}": now("staleness_iterations", "pod, peer"),
        }, "short", "Local iterations since a message of a peer."),
        graph("Gossip: learners alive", {
            "{{experiment}}": now("peers_alive", "", "min"),
            "{{experiment}} of": now("peers", ""),
            "{{experiment}} bound void": now("bound_void", ""),
        }, "short", "The graph closes around one that makes no progress, and takes it in again. "
           "Bound void: those alive are not connected, so they drift apart."),
        graph("Gossip: share of training", {
            "{{experiment}} {{pod}}": grown("seconds_total"),
            "{{experiment}} {{pod}} waiting": grown("wait_seconds_total"),
        }, "percentunit", "Of the training thread's time, for peers; and in it, waiting for one."),
        graph("Gossip: bytes a second", {
            "{{experiment}} {{pod}} sent": grown("sent_bytes_total"),
            "{{experiment}} {{pod}} received": grown("received_bytes_total"),
        }, "Bps", "Parameters only."),
    ]  # fmt: skip


def replay() -> list[dict[str, Any]]:
    """The replay, as its learner sees it in any home, and each shard of a replay service."""

    def each(name: str) -> str:
        return by_experiment("max", f"seedbed_replay_shard_{name}", "", "pod")

    def grown(name: str, also: str = "") -> str:
        return rate(f"seedbed_replay_{name}", also)

    return [
        graph("Replay: sequences", {
            "{{experiment}}": by_experiment("max", "seedbed_replay_sequences"),
            "{{experiment}} can be drawn": by_experiment(
                "max", "seedbed_replay_sampleable"
            ),
            "{{experiment}} capacity": by_experiment("max", "seedbed_replay_capacity"),
        }, "short", "Of the shards that answer, or in the learner."),
        graph("Replay: bytes", {
            "{{experiment}}": by_experiment("max", "seedbed_replay_bytes"),
        }, "bytes", "That it takes when it is full."),
        graph("Replay: sequences a second", {
            "{{experiment}} inserted": grown("inserted_sequences_total"),
            "{{experiment}} drawn": grown("sampled_sequences_total"),
        }, "short", "A sequence is drawn as often as learner.replay.ratio says."),
        graph("Replay: age of samples", {
            "{{experiment}} p50": percentile(0.5, "seedbed_replay_sample_age_seconds"),
            "{{experiment}} p99": percentile(0.99, "seedbed_replay_sample_age_seconds"),
        }, "s", "From the insertion of a sequence to its being drawn."),
        graph("Replay: stale priorities a second", {
            "{{experiment}}": grown("stale_priorities_total"),
        }, "short", "For sequences that had been replaced, or whose shard was away."),
        graph("Replay: waiting for the ratio", {
            "{{experiment}} {{side}}": grown("waiting_seconds_total", "side"),
        }, "percentunit", "`insert`: the actors wait for training. `sample`: training waits for "
           "them. The faster side always waits; the slower one is the bottleneck."),
        graph("Shards", {
            "{{experiment}}": by_experiment("max", "seedbed_replay_shards"),
            "{{experiment}} healthy": by_experiment("max", "seedbed_replay_healthy_shards"),
        }, "short", "A dead shard is left out, and comes back."),
        graph("Shards: sequences", {"{{experiment}} {{pod}}": each("size")}, "short",
              "That each of them holds."),
        graph("Shards: inserts a second", {
            "{{experiment}} {{pod}}": grown("shard_inserts_total", "pod"),
        }, "short", "Each gets its share of the environments."),
        graph("Shards: samples a second", {
            "{{experiment}} {{pod}}": grown("shard_samples_total", "pod"),
        }, "short", "In proportion to their masses."),
        graph("Shards: blocks wait", {
            "{{experiment}} {{pod}}": grown("shard_insert_blocked_seconds_total", "pod"),
        }, "percentunit", "Of the time, in which a block that has come waits for the shard: near 1 "
           "the shard is the bottleneck."),
        graph("Shards: damaged and refused", {
            "{{experiment}} {{pod}} damaged sequences": each("corrupt_total"),
            "{{experiment}} {{pod}} refused streams": each("refused_total"),
        }, "short", "Since each began."),
    ]  # fmt: skip


def rows() -> dict[str, list[dict[str, Any]]]:
    """Titles of rows, and their panels."""
    fps = by_experiment("sum", "seedbed_env_fps", 'window="60s"')
    dollars = by_experiment("sum", "seedbed_cost_dollars_per_hour")
    return {
        "Now": [
            stat("Frames a second", fps, "short", "Emulator frames, over the last minute."),
            stat("Frames", by_experiment("sum", "seedbed_env_frames_total"), "short"),
            stat("Mean return", by_experiment("max", "seedbed_mean_return"), "short",
                 "Of the last 100 episodes."),
            stat("Dollars an hour", dollars, "currencyUSD"),
            stat("Dollars", by_experiment("sum", "seedbed_cost_dollars_total"), "currencyUSD"),
            stat("Dollars a billion frames",
                 by_experiment("sum", "seedbed_cost_dollars_per_billion_frames"), "currencyUSD",
                 "At the bill and the frames so far."),
            named("Bottleneck", f"{metric('seedbed_bottleneck')} == 1",
                  "{{experiment}}: {{part}}", "The part that sets the pace."),
            named("Finished", f"{metric('seedbed_experiment_finished')}",
                  "{{experiment}}: {{reason}}",
                  "The stop condition that was met; empty while the experiment runs."),
            named("Prices", f"{metric('seedbed_cost_price_table')} == 1",
                  "{{experiment}}: {{table}} of {{date}}", "The price table and its date."),
        ],
        "Learning": [
            graph("Return", {"{{experiment}}": by_experiment("max", "seedbed_mean_return")},
                  "short", "Mean of the last 100 episodes."),
            graph("Return against frames: evaluation", {
                "{{experiment}}": by_experiment("max", "seedbed_evaluation", 'statistic="mean"'),
            }, "short", "Mean of the newest evaluation on the side."),
            graph("Loss", {"{{experiment}}": by_experiment("max", "seedbed_loss")}, "short"),
            graph("Training", {
                "{{experiment}} {{name}}": by_experiment("max", "seedbed_training_scalar", "",
                                                         "name"),
            }, "short", "Entropy, explained variance, gradient norm and what else the agent says."),
            graph("Policy lag", {
                "{{experiment}} p50": percentile(0.5, "seedbed_policy_lag_updates"),
                "{{experiment}} p99": percentile(0.99, "seedbed_policy_lag_updates"),
            }, "short", "Updates between acting and training."),
            graph("Episode length", {"{{experiment}}": mean("seedbed_episode_length")}, "short",
                  "Steps."),
        ],
        "Speed": [
            graph("Frames a second", {
                "{{experiment}} {{window}}": by_experiment("sum", "seedbed_env_fps", "", "window"),
            }, "short"),
            graph("Updates a second", {
                "{{experiment}}": by_experiment("sum", "seedbed_updates_per_second"),
            }, "short"),
            graph("Actors", {
                "{{experiment}} environments": by_experiment("sum", "seedbed_environments"),
                "{{experiment}} streams": by_experiment("sum", "seedbed_sessions"),
                "{{experiment}} pods": by_experiment("sum", "seedbed_cost_pods",
                                                     'component="actor"'),
            }, "short"),
            graph("Inference latency", {
                "{{experiment}} p50": percentile(0.5, "seedbed_inference_latency_seconds"),
                "{{experiment}} p95": percentile(0.95, "seedbed_inference_latency_seconds"),
                "{{experiment}} p99": percentile(0.99, "seedbed_inference_latency_seconds"),
            }, "s", "From a request's arrival at the learner until its actions are ready."),
            graph("End-to-end latency", {
                "{{experiment}} p50": percentile(0.5, "seedbed_actor_wait_seconds"),
                "{{experiment}} p95": percentile(0.95, "seedbed_actor_wait_seconds"),
                "{{experiment}} p99": percentile(0.99, "seedbed_actor_wait_seconds"),
            }, "s", "From an actor's sending a group's time step until its actions are there: the "
               "network both ways, the batcher and inference. Above the inference latency, the "
               "rest is the network and the actor."),
            graph("Inference batch", {"{{experiment}}": mean("seedbed_inference_batch_size")},
                  "short", "Environments."),
            graph("Queues", {
                "{{experiment}} inference": by_experiment("sum", "seedbed_inference_queue_depth"),
                "{{experiment}} unrolls": by_experiment("sum", "seedbed_unroll_queue_depth"),
                "{{experiment}} unrolls, full": by_experiment("sum",
                                                              "seedbed_unroll_queue_capacity"),
            }, "short", "Requests that wait for inference; columns that wait for training."),
            graph("Busy", {
                "{{experiment}} {{thread}}": by_experiment("max", "seedbed_busy_fraction", "",
                                                           "thread"),
                "{{experiment}} environments": by_experiment(
                    "max", "seedbed_actor_stepping_fraction"),
            }, "percentunit", "What each thread of the learner, and the actors, do of their time."),
            graph("Blocked", {
                "{{experiment}} {{thread}}": by_experiment("max", "seedbed_blocked_fraction", "",
                                                           "thread"),
            }, "percentunit", "A thread that waits for its neighbour."),
            graph("Training step", {"{{experiment}}": mean("seedbed_train_step_seconds")}, "s"),
        ],
        "Gossip": only_where(
            f"{by_experiment('max', 'seedbed_gossip_peers')} > 1", "One learner", gossip()
        ),
        "Replay": only_where(
            f"{by_experiment('max', 'seedbed_replay_shards')} > 0", "No replay", replay()
        ),
        "Money": [
            graph("Dollars an hour", {
                "{{experiment}} {{component}} {{tier}}": by_experiment(
                    "sum", "seedbed_cost_dollars_per_hour", "", "component, tier"),
            }, "currencyUSD", "What the pods ask for, at the table's prices.", stack=True),
            graph("Dollars by component", {
                "{{experiment}} {{component}} {{tier}}": by_experiment(
                    "sum", "seedbed_cost_dollars_total", "", "component, tier"),
            }, "currencyUSD", "Of the present run.", stack=True),
            graph("Dollars and budget", {
                "{{experiment}} at {{bound}}": by_experiment(
                    "max", "seedbed_cost_dollars_bound", "", "bound"),
                "{{experiment}}": by_experiment("sum", "seedbed_cost_dollars_total"),
                "{{experiment}} budget": by_experiment("max", "seedbed_cost_budget_dollars")
                + " > 0",
            }, "currencyUSD", "A budget is drawn where stop.dollars is set."),
            graph("Frames a dollar", {
                "{{experiment}}": f"{fps} * 3600 / ({dollars} > 0)",
            }, "short", "At the present speed and price."),
            graph("Dollars a billion frames", {
                "{{experiment}} now": f"1e9 * {dollars} / 3600 / ({fps} > 0)",
                "{{experiment}} so far, {{component}}": by_experiment(
                    "max", "seedbed_cost_dollars_per_billion_frames", "", "component"),
            }, "currencyUSD"),
        ],
        "Health": [
            graph("Age of the newest checkpoint", {
                "{{experiment}}": by_experiment("max", "seedbed_checkpoint_age_seconds"),
                "{{experiment}} interval": by_experiment("max",
                                                         "seedbed_checkpoint_interval_seconds"),
            }, "s"),
            graph("Replicas", {
                "{{experiment}} {{component}} wanted": by_experiment(
                    "max", "seedbed_cost_wanted_replicas", "", "component"),
                "{{experiment}} {{component}}": by_experiment(
                    "max", "seedbed_cost_pods", 'component!="cost"', "component"),
            }, "short", "Wanted by the workloads, and pods that have a node."),
            graph("Free on the run's volume", {
                "{{experiment}}": by_experiment("min", "seedbed_run_volume_free_bytes"),
            }, "bytes"),
            panel("stat", "Exit codes", {
                "{{experiment}} {{exported_pod}}": f"{metric('seedbed_exit_code')} > 0",
            }, "none", 8, 8, "Newest end of each present pod that was not clean; "
               "docs/exit-codes.md has what to do.", textMode="value_and_name", colorMode="none",
               graphMode="none", defaults={"noValue": "None"}),
            graph("Restarts", {
                "{{experiment}} {{component}}": by_experiment("max", "seedbed_cost_pod_restarts",
                                                              "", "component"),
            }, "short", "Of the containers that are there."),
            graph("Errors", {
                "{{experiment}} streams": by_experiment("sum", "seedbed_stream_errors_total"),
                "{{experiment}} checkpoints": by_experiment("sum",
                                                            "seedbed_checkpoint_failures_total"),
                "{{experiment}} environments": by_experiment(
                    "sum", "seedbed_actor_environment_failures_total"),
                "{{experiment}} meter": by_experiment("sum", "seedbed_cost_errors_total"),
            }, "short", "Since each process began."),
            graph("Discarded frames", {
                "{{experiment}}": by_experiment("sum", "seedbed_discarded_frames_total"),
            }, "short", "Never trained on: queued or half rolled at a restart."),
        ],
    }  # fmt: skip


def variables() -> list[dict[str, Any]]:
    """Data source, cluster, namespace, experiment."""
    frames = "seedbed_env_frames_total"
    within = 'cluster=~"$cluster",namespace=~"$namespace"'
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        # `.*` matches series without the label.
        labels_variable("cluster", f"label_values({frames}, cluster)", ".*"),
        labels_variable(
            "namespace", f'label_values({frames}{{cluster=~"$cluster"}}, namespace)'
        ),
        labels_variable("experiment", f"label_values({frames}{{{within}}}, experiment)"),
    ]  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The whole."""
    return {
        "uid": "seedbed", "title": "Seedbed", "tags": ["seedbed"], "schemaVersion": 41,
        "editable": False, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": variables()}, "panels": laid_out(rows()),
    }  # fmt: skip


def main() -> int:
    """Write, or check."""
    texts = {FILE: dashboard(), SETS_FILE: sets_dashboard()}
    made = {file: json.dumps(one, indent=1) + "\n" for file, one in texts.items()}
    return write_or_check(made, "tools/dashboard.py")


if __name__ == "__main__":
    sys.exit(main())
