"""Neural networks in Keras 3. `NETWORKS` names them without importing Keras."""

# `learner.network` of an experiment to module:Class.
NETWORKS = {
    "football": "seedbed.networks.football:Football",
    "impala_deep": "seedbed.networks.impala:ImpalaDeep",
    "impala_shallow": "seedbed.networks.impala:ImpalaShallow",
    "mlp": "seedbed.networks.mlp:Mlp",
    "nature": "seedbed.networks.nature:Nature",
    "nature_shallow": "seedbed.networks.nature:NatureShallow",
}

# Name of the network that an observation decides, which takes no options.
AUTO = "auto"

# Keyword arguments of each, as `learner.network_options` has them.
NETWORK_OPTIONS = {
    AUTO: (),
    "football": (),
    "impala_deep": ("width",),
    "impala_shallow": ("standardize",),
    "mlp": ("units", "activation"),
    "nature": ("standardize",),
    "nature_shallow": ("standardize",),
}
