"""Rewards as a loss sees them."""

from typing import Any

from seedbed.agents.options import AgentOptions
from seedbed.types import Tensor


def clip_reward(reward: Tensor, options: AgentOptions, xp: Any) -> Tensor:
    """Return rewards [...] float32, clipped as the options say.

    Optimistic asymmetric clipping is that of IMPALA (Espeholt et al. 2018, arXiv:1802.01561,
    hyperparameters for DMLab-30).

    Args:
        reward: [...] float32, raw but for a scale.
        options: the hyperparameters.
        xp: `keras.ops` or NumPy.
    """
    if options.optimistic_asymmetric_clip:
        squeezed = xp.tanh(reward)
        return 0.3 * xp.minimum(squeezed, 0.0) + 5.0 * xp.maximum(squeezed, 0.0)
    if options.reward_clip:
        return xp.clip(reward, -options.reward_clip, options.reward_clip)
    return reward
