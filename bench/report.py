"""The results as tables: Markdown, which is readable on a terminal too."""

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Case = Mapping[str, Any]

# A number in a format such as `{rss_bytes:.0f/mi}` is given in that unit.
UNITS = {"ki": 2**-10, "mi": 2**-20, "million": 1e-6, "percent": 100, "milli": 1000}


class Table(NamedTuple):
    """A Markdown table of a part's results.

    Titles and cells are format strings. A series is shown as its median with (least to greatest),
    and what is None, or not in an older file, not at all.

    Attributes:
        title: Of the part's results; a sentence of its own in a table without `rows`.
        rows: Takes the part's results, and returns the case of each row.
        head: Heads of the columns, with `|` between them.
        cells: Cells of a case, likewise.
    """

    title: str
    rows: Callable[[Any], Iterable[Case]] | None = None
    head: str = ""
    cells: str = ""

    def markdown(self, part: Case) -> str:
        """Return the table of a part, whose columns line up."""
        title = _TEXT.format(self.title, **part)
        if self.rows is None:
            return title
        cells = self.cells.split(" | ")
        table = [self.head.split(" | ")]
        table += [[_TEXT.format(cell, **case) for cell in cells] for case in self.rows(part)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in table]
        rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
        return "\n".join([f"**{title}**", "", lines[0], rule, *lines[1:]])


class _Text(string.Formatter):
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except KeyError:
            return None, field_name  # a file of before this figure

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return ""
        if isinstance(value, dict):
            median, low, high = (format(value[it], format_spec) for it in ("median", "min", "max"))
            return f"{median} ({low} to {high})"
        spec, _, unit = format_spec.partition("/")
        return format(value * UNITS[unit] if unit else value, spec)


_TEXT = _Text()


def _named(cases: Mapping[str, Case]) -> list[dict[str, Any]]:
    """Return the cases, each with its name."""
    return [{"name": name, **case} for name, case in cases.items()]


def _cases(part: Case) -> Iterable[Case]:
    cases: Iterable[Case] = part["cases"]
    return cases


def _memory(part: Case) -> Iterable[Case]:
    """Yield what was measured, and the figure."""
    figures = {**part["slot"], **part["growth"]}
    frames = "{env_frames:.2f/million} M frames"
    rows = {
        "a slot, measured": "{bytes_a_slot:.0f/ki} KiB",
        "a slot, computed": "{computed_bytes_a_slot:.0f/ki} KiB: unroll "
        "{computed_unroll_bytes:.0f/ki}, device tables {computed_table_bytes:.0f/ki}",
        f"learner, resident after {frames}": "{learner_rss_bytes:.0f/mi} MiB, "
        "{learner_rss_growth_bytes:+.1f/mi} MiB since warm, "
        "{learner_bytes_a_million_frames:+.1f/mi} MiB a million frames",
        f"actors, resident after {frames}": "{actors_rss_bytes:.0f/mi} MiB, "
        "{actors_rss_growth_bytes:+.1f/mi} MiB since warm, "
        "{actors_bytes_a_million_frames:+.1f/mi} MiB a million frames",
    }
    for what, figure in rows.items():
        yield {"what": _TEXT.format(what, **figures), "figure": _TEXT.format(figure, **figures)}


def _gossip_speed(part: Case) -> Iterable[Case]:
    """Yield the cases with the shares of time that they spend on the exchange."""
    speed = part["speed"]
    for name, case in speed["cases"].items():
        shares = {key: speed[f"gossip_share_of_{key}"][name] for key in ("time", "steps")}
        yield {"name": name, **case, **shares}


def _stability(task: Case) -> Iterable[Case]:
    """Yield the runs of each case. Their scores are in rising order, missing ones first."""
    for name, share in task["successful"].items():
        scores = task["scores"][name]
        known = sorted(score for score in scores if score is not None)
        missing = ["none"] * (len(scores) - len(known))
        text = ", ".join([*missing, *(f"{score:.3g}" for score in known)])
        yield {"name": name, "share": share, "runs": len(scores), "scores": text}


def _growth(result: Case) -> Iterable[Case]:
    """Yield the rows, with sizes and costs as texts."""
    for row in result["cases"]:
        sizes = ", ".join(f"{size:,}" for size in row["sizes"])
        costs = (f"{cost:,.3g}" if cost < 1000 else f"{cost:,.0f}" for cost in row["costs"])
        yield {**row, "sizes": sizes, "costs": ", ".join(costs)}


TABLES: dict[str, Sequence[Table]] = {
    "actor_efficiency": [
        Table(
            "actor_efficiency",
            _cases,
            "environments a group | by | efficiency | goal | steps/s | bare steps/s | learner CPU",
            "{environments} | {transport} | {efficiency:,.2f} | {goal:,.2f} | {steps_per_s:,.0f} | "
            "{bare_steps_per_s:,.0f} | {learner_cpu_us_a_step[median]:.0f} µs a step",
        )
    ],
    "wire_efficiency": [
        Table(
            "wire_efficiency",
            _cases,
            "E | streams | efficiency | goal | messages/s | bare messages/s | "
            "server CPU a message | bare | of bare streams read alike | their messages/s | "
            "their CPU",
            "{environments} | {streams} | {efficiency:,.2f} | {goal:,.2f} | "
            "{messages_per_s:,.0f} | {bare_messages_per_s:,.0f} | "
            "{server_cpu_us[median]:.0f} µs | {bare_server_cpu_us[median]:.0f} µs | "
            "{of_alike:,.2f} | {alike_messages_per_s:,.0f} | "
            "{alike_server_cpu_us[median]:.0f} µs",
        )
    ],
    "peers": [
        Table(
            "training Pong with the Nature network on the same cores, in turn",
            lambda part: part.get("frames", ()),
            "system | loss | env frames/s | Seedbed in float32, times | in bfloat16, times",
            "{name} | {loss} | {env_fps:,.0f} | {float32_times:.2f} | {bfloat16_times:.2f}",
        ),
        Table(
            "replay in another process, in memory, items a second, in turn",
            lambda part: part.get("replay", ()),
            "content | Reverb: in | out | Seedbed, shared memory: in | times | out | times | "
            "TCP: in | times | out | times",
            "{content} | {reverb_insert_per_s:,.0f} | {reverb_sample_per_s:,.0f} | "
            "{shared_memory_insert_per_s:,.0f} | {shared_memory_insert_times:.2f} | "
            "{shared_memory_sample_per_s:,.0f} | {shared_memory_sample_times:.2f} | "
            "{tcp_insert_per_s:,.0f} | {tcp_insert_times:.2f} | "
            "{tcp_sample_per_s:,.0f} | {tcp_sample_times:.2f}",
        ),
    ],
    "start": [
        Table(
            "from the command on, seconds (importing the actor: {actor_import_cpu_s[median]:.2f} s "
            "of CPU)",
            _cases,
            "experiment | first update | goal | first answer of a resumed run | of a killed "
            "learner, to actors that wait | goal",
            "{experiment} | {first_update_s:.1f} | 8 | {resumed_s:.1f} | {restarted_s:.1f} | 5",
        ),
    ],
    "growth": [
        Table(
            "cost of a unit, at each size",
            _growth,
            "what | as these grow | costs | exponent",
            "{what} | {sizes_are}: {sizes} | {costs} | {exponent:+.2f}",
        )
    ],
    "system_efficiency": [
        Table(
            "system_efficiency",
            _cases,
            "network | efficiency | goal | env_fps | goal | round trip p50, ms | p99, ms | "
            "steps/s | limit | each alone | one after the other | arithmetic | "
            "CPU a step: environment + inference + training",
            "{network} | {efficiency:,.2f} | {goal:,.2f} | {env_fps:,.0f} | "
            "{env_fps_goal:,.0f} | {round_trip_ms_p50:,.1f} | {round_trip_ms_p99:,.1f} | "
            "{steps_per_s:,.0f} | {limit_steps_per_s:,.0f} | {limit_alone_steps_per_s:,.0f} | "
            "{serial_steps_per_s:,.0f} | {arithmetic_steps_per_s[median]:,.0f} "
            "({mflop_a_step:.0f} MFLOP at {gemm_gflops[median]:.0f} GFLOP/s) | "
            "{env_cpu_us[median]:.0f} + {infer_cpu_us[median]:.0f} + "
            "{train_cpu_us[median]:.0f} µs (inference of {infer_batch})",
        )
    ],
    "workers": [
        Table(
            "steps/s of {environments} environments, beside Gymnasium's AsyncVectorEnv with a "
            "process for each",
            _cases,
            "environment | in the actor | 1 worker | 2 workers | 4 workers | AsyncVectorEnv",
            "{environment} | {workers_0:,.0f} | {workers_1:,.0f} | {workers_2:,.0f} | "
            "{workers_4:,.0f} | {gymnasium:,.0f}",
        ),
        Table(
            "CPU time of a step of one environment, all processes: µs",
            _cases,
            "environment | in the actor | 1 worker | 2 workers | 4 workers | AsyncVectorEnv",
            "{environment} | {workers_0_cpu_us:,.0f} | {workers_1_cpu_us:,.0f} | "
            "{workers_2_cpu_us:,.0f} | {workers_4_cpu_us:,.0f} | {gymnasium_cpu_us:,.0f}",
        ),
    ],
    "memory": [Table("memory", _memory, "what | figure", "{what} | {figure}")],
    "replay": [
        Table(
            "replay within the learner ({backend}, device {homes[device][device]}; sequences of "
            "40 + 80 steps of 84 x 84, batches of 64)",
            lambda part: _named(part["homes"]),
            "storage | inserted/s | of a copy | drawn/s | of a copy | priorities/s",
            "{name} | {insert_sequences_per_s:,.0f} | {insert_of_copy:,.2f} | "
            "{sample_sequences_per_s:,.0f} | {sample_of_copy:,.2f} | {priorities_per_s:,.0f}",
        ),
        Table(
            "replay shard (two processes; beside gRPC streams of as many bytes, over a unix socket "
            "or TCP)",
            lambda part: part["service"]["cases"],
            "way | content | kept in | inserted/s | of a bare stream | drawn/s | "
            "of a bare stream | goal | priorities/s",
            "{way} | {content} | {kept_in} | {insert_sequences_per_s:,.0f} | "
            "{insert_of_bare_stream:,.2f} | {sample_sequences_per_s:,.0f} | "
            "{sample_of_bare_stream:,.2f} | 0.80 | {priorities_per_s:,.0f}",
        ),
        Table(
            "sequences that several learners draw from one shard (in memory), each a process with "
            "two batches of 64 under way",
            lambda part: part.get("learners", {}).get("sampling", ()),
            "way | learners | drawn/s, together | MB/s | least and most of a learner",
            "{way} | {learners} | {drawn_per_s:,.0f} | {drawn_mb_per_s:,.0f} | "
            "{least[median]:.2f} to {most[median]:.2f}",
        ),
        Table(
            "an update that takes an accelerator {learners[prefetch][0][update_s]} s (a stand-in, "
            "which sleeps), batch and priorities included",
            lambda part: part.get("learners", {}).get("prefetch", ()),
            "way | nothing ahead: s | two batches ahead: s | of the way hidden",
            "{way} | {without_s:.3f} | {prefetched_s:.3f} | {hidden:.2f}",
        ),
        Table(
            "training step, {training[transitions]:,} transitions of 57 floats "
            "({training[device]})",
            lambda part: part["training"]["steps"],
            "batch | RAM, copied each step: ms | RAM, prefetched: ms | device, fused: ms | "
            "faster than copied: % | than prefetched: % | paper: %",
            "{batch_size} | {host_ms:,.2f} | {prefetched_ms:,.2f} | {device_ms:,.2f} | "
            "{speedup_percent:,.0f} | {speedup_percent_over_prefetched:,.0f} | "
            "{paper_percent:.1f}",
        ),
        Table(
            "insertion of a transition (paper: {training[insertion][paper_us][ram]} µs in RAM, "
            "{training[insertion][paper_us][gpu]} µs on the GPU, 2,000 at a time)",
            lambda part: part["training"]["insertion"]["cases"],
            "at a time | RAM: µs | device: µs",
            "{at_a_time:,} | {host_us:,.2f} | {device_us:,.2f}",
        ),
    ],
    "gossip": [
        Table(
            "bytes on the wire of a mixing, TCP, everything counted",
            lambda part: _named(part["exchange"]),
            "parameters of | bytes | on the wire | ratio | goal",
            "{name} | {parameters_bytes:,} | {wire_bytes:,.0f} | {ratio:.4f} | 1.02",
        ),
        Table(
            "learners on {speed[environment]}, {speed[simulators]} simulators each; energy by "
            "{speed[energy]} (model: {speed[cpu_watts]:g} W a busy vCPU), of the whole machine",
            _gossip_speed,
            "learners | env frames/s | updates/s | mixes/s | of the learner's time: % | "
            "of its training steps: % | frames a kilojoule",
            "{name} | {env_frames:,.0f} | {updates:.1f} | {gossip_mixes:.1f} | "
            "{time:.2f/percent} | {steps:.1f/percent} | {frames_per_kilojoule:,.0f}",
        ),
        Table(
            "frames a second, as ratios",
            lambda part: ({"case": pair} for pair in part["speed"]["ratios"].items()),
            " | ratio",
            "{case[0]} | {case[1]:.2f}",
        ),
        Table(
            "a straggler: {straggler[learners]} learners on {straggler[environment]}, the steps of "
            "one of them {straggler[slow_s]:g/milli} ms longer",
            lambda part: _named(part["straggler"]["cases"]),
            "learners | env frames/s",
            "{name} | {env_frames:,.0f}",
        ),
        Table(
            "With the straggler gossip keeps {straggler[kept][gossip]:.0f/percent} %, allreduce "
            "keeps {straggler[kept][allreduce]:.0f/percent} %, hogwild "
            "{straggler[kept][hogwild]:.0f/percent} %; gossip is "
            "{straggler[gossip / allreduce, one slow]:.2f} times as fast as all-reduce then."
        ),
    ],
    "baseline": [
        Table(
            "SEED and IMPALA on {cores:g} cores: impala_deep on Pong, unrolls of {unroll_length}, "
            "TCP (paper: DeepMind Lab, IMPALA on a P100, SEED on two TPU v3 cores)",
            _cases,
            "model | system | actors | environments | env frames/s | SEED faster | paper | "
            "$ per 1e9 frames | SEED cheaper | paper | bytes a frame sent | received | "
            "latency p50: ms | p99: ms | paper: ms | lag of first step | of last",
            "{model} | {system} | {actors} | {environments} | {env_fps:,.0f} | "
            "{seed_faster:.2f} | {paper_seed_faster:.2f} | {dollars[median]:,.2f} | "
            "{seed_cheaper:.2f} | {paper_seed_cheaper:.2f} | {sent_bytes[median]:,.0f} | "
            "{received_bytes[median]:,.0f} | {wait_ms_p50:,.1f} | {wait_ms_p99[median]:,.0f} | "
            "{paper_wait_ms:.1f} | {first_lag:.2f} | {last_lag:.2f}",
        ),
    ],
    "stability": [
        Table(
            "{name}: runs above half of A2C's mean score with 16 simulators "
            "({half_of_nominal:.4g}) after {env_frames:,} frames ({backend})",
            _stability,
            "method, simulators | successful | runs | scores",
            "{name} | {share:.0f/percent} % | {runs} | {scores}",
        )
    ],
}


def markdown(results: dict[str, Any]) -> str:
    """Return everything that was measured, medians with (least to greatest)."""
    blocks = [_heading(results)]
    for key, tables in TABLES.items():
        if key in results:
            parts = _named(results[key]) if key == "stability" else [results[key]]
            blocks += [table.markdown(part) for part in parts for table in tables]
    return "\n\n".join(blocks)


def _heading(results: dict[str, Any]) -> str:
    machine, revision = results["machine"], results["revision"]
    packages = ", ".join(f"{name} {v}" for name, v in machine["packages"].items() if v)
    lines = [
        f"`{results['command']}`, {results['time']}, revision {revision['commit'][:10]}"
        + (" with changes" if revision["changed"] else "")
        + f", {results['runs']} runs"
        + (", quick: no figures to quote" if results["quick"] else ""),
        f"{machine['cores']:g} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB, "
        f"float32 matrix product {machine['gemm_gflops']:.0f} GFLOP/s, load before "
        f"{machine['load_average_1m']:.1f}; Python {machine['python']}, {packages}",
        "took " + ", ".join(f"{part} {s:.0f} s" for part, s in results["seconds"].items()),
    ]  # fmt: skip
    lines += [f"{part} failed, and is missing" for part in results.get("failed", {})]
    return "\n".join(f"- {line}" for line in lines)
