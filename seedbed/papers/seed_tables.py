"""Tables 1, 3, 4, 5, 11, 12 and 13 of the SEED paper (Espeholt et al. 2020, arXiv:1910.06591).

Figures are texts as they are printed, so that what is shown as printed is that; `printed.value_of`
reads them. Of the paper's versions this is the last one.
"""

from typing import NamedTuple

LAB, FOOTBALL, ATARI = "DeepMind Lab", "Google Research Football", "Arcade Learning Environment"
P100, V100, TPU_V3 = "nvidia-tesla-p100", "nvidia-tesla-v100", "tpu-v3-slice"
# Frames of an environment's step: Figure 5 for Lab, section 4.2 for Football, Table 9 for Atari.
ACTION_REPEAT = {LAB: 4, FOOTBALL: 1, ATARI: 4}


class Setup(NamedTuple):
    """What a row of the paper ran on.

    Attributes:
        environment: One of LAB, FOOTBALL, ATARI.
        architecture: IMPALA, R2D2 or SEED.
        model: Width of the network, or size of Football's map; "" where the paper names none.
        accelerator: Key of the price tables' accelerators.
        devices: GPUs, or TPU chips, each of two cores.
        envs: Environments of all actors.
        cpus: CPUs of all actors; None where the paper gives none.
        speed: Frames a second, as printed.
    """

    environment: str
    architecture: str
    model: str
    accelerator: str
    devices: int
    envs: int
    cpus: int | None
    speed: str

    @property
    def name(self) -> str:
        """The row's name within its environment."""
        return ", ".join(filter(None, (self.architecture, self.model)))

    @property
    def accelerators(self) -> str:
        """The accelerators as the paper names them."""
        if self.accelerator == TPU_V3:
            return f"TPU v3, {2 * self.devices} cores"
        name = {P100: "Nvidia P100", V100: "Nvidia V100"}[self.accelerator]
        return name if self.devices == 1 else f"{self.devices} x {name}"


class Rate(NamedTuple):
    """A row of Table 1; `ratio` is to the first row of its environment and model."""

    setup: Setup
    batch_size: int
    ratio: str = ""
    note: str = ""


class Bill(NamedTuple):
    """A row of Table 4, 5 or 12: dollars for 1e9 frames; `ratio` is IMPALA's over SEED's."""

    setup: Setup
    actors: int
    cost: str
    ratio: str = ""


class Split(NamedTuple):
    """A row of Table 11: dollars for 1e9 frames, by component."""

    setup: Setup
    actors: str
    learner: str
    total: str


class Latency(NamedTuple):
    """A row of Table 13: the end-to-end inference latency, and the setups that have it."""

    environment: str
    model: str
    impala: str
    seed: str
    setups: tuple[Setup | None, Setup]


class Price(NamedTuple):
    """A row of Table 3: US dollars an hour of one `resource`."""

    resource: str
    accelerator: str  # "" is a CPU core
    price: str


PRICES = (
    Price("CPU core", "", "$0.0475"),
    Price("Nvidia Tesla P100", P100, "$1.46"),
    Price("TPU v3 core", TPU_V3, "$1.00"),
)

_BATCH_SHARE = "{} of 8 cores train"
RATES = (
    Rate(Setup(LAB, "IMPALA", "", P100, 1, 176, 176, "30K"), 32),
    Rate(Setup(LAB, "SEED", "", P100, 1, 176, 44, "19K"), 32, "0.63x"),
    Rate(Setup(LAB, "SEED", "", TPU_V3, 1, 312, 104, "74K"), 32, "2.5x"),
    Rate(Setup(LAB, "SEED", "", TPU_V3, 4, 1560, 520, "330K"), 48, "11.0x", _BATCH_SHARE.format(6)),
    Rate(
        Setup(LAB, "SEED", "", TPU_V3, 32, 12480, 4160, "2.4M"),
        *(384, "80.0x", _BATCH_SHARE.format(6)),
    ),
    Rate(Setup(FOOTBALL, "IMPALA", "Default", P100, 2, 400, 400, "11K"), 128),
    Rate(Setup(FOOTBALL, "SEED", "Default", TPU_V3, 1, 624, 416, "18K"), 128, "1.6x"),
    Rate(
        Setup(FOOTBALL, "SEED", "Default", TPU_V3, 4, 2496, 1664, "71K"),
        *(160, "6.5x", _BATCH_SHARE.format(5)),
    ),
    Rate(
        Setup(FOOTBALL, "SEED", "Medium", TPU_V3, 4, 1550, 1032, "44K"),
        *(160, "", _BATCH_SHARE.format(5)),
    ),
    Rate(
        Setup(FOOTBALL, "SEED", "Large", TPU_V3, 4, 1260, 840, "29K"),
        *(160, "", _BATCH_SHARE.format(5)),
    ),
    Rate(
        Setup(FOOTBALL, "SEED", "Large", TPU_V3, 16, 5040, 3360, "114K"),
        *(640, "3.9x", _BATCH_SHARE.format(5)),
    ),
    Rate(Setup(ATARI, "R2D2", "", V100, 1, 256, None, "85K"), 64, "", "256 actors of 335 frames/s"),
    Rate(Setup(ATARI, "SEED", "", V100, 1, 256, 55, "67K"), 64, "0.79x"),
    Rate(Setup(ATARI, "SEED", "", TPU_V3, 4, 610, 213, "260K"), 64, "3.1x"),
    Rate(Setup(ATARI, "SEED", "", TPU_V3, 4, 1200, 419, "440K"), 256, "5.2x", "no frame stacking"),
)

# IMPALA: one environment an actor. SEED: 12 to 16 on 4 CPUs.
LAB_BILLS = (
    Bill(Setup(LAB, "IMPALA", "Default", P100, 1, 176, 176, "30k"), 176, "$90"),
    Bill(Setup(LAB, "IMPALA", "Medium", P100, 1, 130, 130, "16.5k"), 130, "$128"),
    Bill(Setup(LAB, "IMPALA", "Large", P100, 1, 100, 100, "7.3k"), 100, "$236"),
    Bill(Setup(LAB, "SEED", "Default", TPU_V3, 1, 312, 104, "74k"), 26, "$25", "3.60"),
    Bill(Setup(LAB, "SEED", "Medium", TPU_V3, 1, 156, 48, "34k"), 12, "$35", "3.66"),
    Bill(Setup(LAB, "SEED", "Large", TPU_V3, 1, 84, 24, "16k"), 6, "$54", "4.37"),
)
# IMPALA: one core an actor. SEED: 12 environments on 8 cores.
FOOTBALL_BILLS = (
    Bill(Setup(FOOTBALL, "IMPALA", "Default", P100, 2, 400, 400, "11k"), 400, "$553"),
    Bill(Setup(FOOTBALL, "IMPALA", "Medium", P100, 2, 300, 300, "7k"), 300, "$681"),
    Bill(Setup(FOOTBALL, "IMPALA", "Large", P100, 2, 300, 300, "5.3k"), 300, "$899"),
    Bill(Setup(FOOTBALL, "SEED", "Default", TPU_V3, 1, 624, 416, "17.5k"), 52, "$345", "1.68"),
    Bill(Setup(FOOTBALL, "SEED", "Medium", TPU_V3, 1, 310, 248, "10.5k"), 31, "$365", "1.87"),
    Bill(Setup(FOOTBALL, "SEED", "Large", TPU_V3, 1, 252, 168, "7.5k"), 21, "$369", "2.70"),
)
P100_BILLS = (
    Bill(Setup(LAB, "IMPALA", "", P100, 1, 176, 176, "30k"), 176, "$90"),
    Bill(Setup(LAB, "SEED", "", P100, 1, 176, 44, "19k"), 15, "$51", "1.76"),
)
BILLS = {4: LAB_BILLS, 5: FOOTBALL_BILLS, 12: P100_BILLS}

_LAB = [bill.setup for bill in LAB_BILLS]
_FOOTBALL = [bill.setup for bill in FOOTBALL_BILLS]
_ATARI = Setup(ATARI, "SEED", "Default", TPU_V3, 4, 610, 213, "260K")

SPLITS = (
    Split(_ATARI, "$10.8", "$8.5", "$19.3"),
    Split(_LAB[0], "$77.0", "$13.4", "$90"),
    Split(_LAB[1], "$103.6", "$24.4", "$128"),
    Split(_LAB[2], "$180.5", "$55.5", "$236"),
    Split(_LAB[3], "$20.1", "$8.2", "$28"),
    Split(_LAB[4], "$18.6", "$16.4", "$35"),
    Split(_LAB[5], "$19.6", "$35", "$54"),
    Split(_FOOTBALL[0], "$479", "$74", "$553"),
    Split(_FOOTBALL[1], "$565.2", "$115.8", "$681"),
    Split(_FOOTBALL[2], "$746.1", "$153", "$899"),
    Split(_FOOTBALL[3], "$313", "$32", "$345"),
    Split(_FOOTBALL[4], "$312", "$53", "$365"),
    Split(_FOOTBALL[5], "$295", "$74", "$369"),
)

LATENCIES = (
    Latency(LAB, "Default", "17.97ms", "10.98ms", (_LAB[0], _LAB[3])),
    Latency(LAB, "Medium", "25.86ms", "12.70ms", (_LAB[1], _LAB[4])),
    Latency(LAB, "Large", "48.79ms", "14.99ms", (_LAB[2], _LAB[5])),
    Latency(FOOTBALL, "Default", "12.59ms", "6.50ms", (_FOOTBALL[0], _FOOTBALL[3])),
    Latency(FOOTBALL, "Medium", "19.24ms", "5.90ms", (_FOOTBALL[1], _FOOTBALL[4])),
    Latency(FOOTBALL, "Large", "34.20ms", "11.19ms", (_FOOTBALL[2], _FOOTBALL[5])),
    Latency(ATARI, "Default", "", "7.2ms", (None, _ATARI)),
)

# Which printed figures do not follow from the others, and what is known of it. By the table, the
# row's environment and name, and the column.
MISPRINTS = {
    (4, LAB, "SEED, Default", "cost"): "Table 11 has $28 for the same row: neither follows from "
    "104 CPUs, 2 TPU cores and 74k frames a second",
    (4, LAB, "SEED, Default", "ratio"): "$90 over the misprinted $25",
    (5, FOOTBALL, "SEED, Default", "ratio"): "$553 over $345, both printed, are 1.60",
    (5, FOOTBALL, "SEED, Large", "ratio"): "$899 over $369, both printed, are 2.44",
    **dict.fromkeys(
        [(11, LAB, "SEED, Default", column) for column in ("actors", "learner", "total")],
        "Table 4 has $25 for the same row; $28 is its cost at 68k frames a second",
    ),
}
# What is said of a whole table.
REMARKS = {
    1: ("Table 3 has no price of a V100; --prices us-central1-aug-2026 has.",),
    4: ("At 7.3k IMPALA's batch is 16 instead of 32: the P100 has no memory for more.",),
    11: (
        "An earlier version of the paper has $11.4 and $4.3 for Atari at 210K, which 213 CPUs and "
        "8 cores do not cost ($13.4 and $10.6); the figures here do follow.",
    ),
    13: (
        "a step takes: milliseconds between two steps of an environment, from the environments and "
        "the speed of Tables 1, 4 and 5 (Little's law); a latency must be below it.",
        "The paper does not say whether its latencies are means or medians.",
    ),
}
TABLES = (1, 3, 4, 5, 11, 12, 13)
