"""Actor process with a copy of the network: IMPALA, the baseline that SEED is compared with."""
