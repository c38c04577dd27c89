"""Floating point operations of a step: what bounds training on a CPU, however good the rest."""

# Filters, size and stride of each convolution, then the units of the dense layer.
NETWORKS = {
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),  # Mnih et al. 2015
    "impala_shallow": (((16, 8, 4), (32, 4, 2)), 256),  # Espeholt et al. 2018, figure 3, left
}
SIDE = 84


def mflop_a_step(network: str, frame_stack: int, unroll_length: int) -> float:
    """Millions of operations of an environment step: acted on once, and trained on.

    A multiplication and an addition are two. Training is a forward pass and, for every layer, the
    gradients of weights and inputs; the first layer's inputs need none. Row T of an unroll is in
    the training batch too, so (T + 1) / T rows a step. The heads are left out.
    """
    convolutions, units = NETWORKS[network]
    side, channels = SIDE, frame_stack
    layers: list[float] = []
    for filters, size, stride in convolutions:
        side = (side - size) // stride + 1
        layers.append(2 * side**2 * filters * size**2 * channels)
        channels = filters
    layers.append(2 * side**2 * channels * units)
    forward = sum(layers)
    training = (3 * forward - layers[0]) * (unroll_length + 1) / unroll_length
    return (forward + training) / 1e6
