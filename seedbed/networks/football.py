"""The network of Kurach et al. 2020, "Google Research Football" (arXiv:1907.11180), figure 11.

It is the deep network of IMPALA with a fourth section, and without a recurrent core.
"""

from seedbed.networks.impala import ImpalaDeep


class Football(ImpalaDeep):
    """Four sections of 16, 32, 32 and 32 filters, dense 256.

    Kurach et al. and the SEED paper (section 4.2) give it four stacked Super Mini Maps.
    """

    smallest = 16
    filters = (16, 32, 32, 32)

    def __init__(self) -> None:
        super().__init__()
