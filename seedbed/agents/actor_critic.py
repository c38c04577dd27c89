"""Base of the actor-critic agents: the model, how it acts, and the loss but for its targets."""

from typing import Any, NamedTuple

import keras
from keras import ops
from typing_extensions import override

from seedbed.agents.options import ActorCriticOptions
from seedbed.agents.protocol import ActInputs, ActOutputs, OnPolicyAgent, Unroll
from seedbed.agents.rewards import clip_reward
from seedbed.networks.body import Body
from seedbed.networks.initializers import GlorotUniform, Orthogonal
from seedbed.ops.masked import explained_variance, masked_mean
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor


class ActorCriticModel(keras.Model):
    """A body with a softmax policy and a value."""

    def __init__(self, body: Body, actions: int) -> None:
        super().__init__(name="model")
        self.body = body
        # Nearly uniform at first, and while the value's gradient makes the features grow: through
        # a head of usual size that alone ends exploration within a hundred updates of Pong.
        usual = body.initial_weights == "glorot"
        self.policy = keras.layers.Dense(
            actions,
            kernel_initializer=GlorotUniform() if usual else Orthogonal(0.01),
            dtype="float32",
            name="policy",
        )
        self.value = keras.layers.Dense(
            1, kernel_initializer=GlorotUniform(), dtype="float32", name="value"
        )

    def call(
        self,
        observation: Tensor,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [R, B, A], values [R, B] and the state [B, S].

        Args:
            observation: [R, B, *stacked shape].
            previous_action: [R, B] int32, -1 on first steps.
            previous_reward: [R, B] float32, 0 on first steps.
            first: [R, B] bool, steps before which the state is zeroed.
            state: [B, S] float32.
        """
        features, state = self.body(observation, previous_action, previous_reward, first, state)
        return self.policy(features), ops.squeeze(self.value(features), -1), state


class ActorCriticAgent(OnPolicyAgent):
    """An agent with an `ActorCriticModel`. Subclasses add `Options` and `loss`."""

    noise_columns = 1

    def __init__(self, options: Any, body: Body, actions: int) -> None:
        self.options = options
        self.body = body
        self.behaviour = {"logits": ArraySpec((actions,), "float32")}
        self.model = ActorCriticModel(body, actions)
        self.model(*body.zeros())

    @override
    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        (logits, _, state), _ = self.model.stateless_call(params, [], *inputs.one_step(), state)
        logits = logits[0]  # [N, A]
        if greedy:
            action = ops.cast(ops.argmax(logits, axis=-1), "int32")
        else:
            action = sample_action(logits, inputs.noise[:, 0])
        return ActOutputs(action, {"logits": logits}, state)

    def forward(self, params: Params, unroll: Unroll) -> tuple[Tensor, Tensor]:
        """Return logits [R, B, A] and values [R, B] of the training forward pass."""
        (logits, values, _), _ = self.model.stateless_call(
            params, [], *unroll.steps(), unroll.state
        )
        return logits, values


def sample_action(logits: Tensor, uniform: Tensor) -> Tensor:
    """Sample actions by the inverse of the cumulative distribution.

    Args:
        logits: [N, A] float32.
        uniform: [N] float32 in [0, 1).

    Returns:
        [N] int32.
    """
    cumulative = ops.cumsum(ops.softmax(logits, axis=-1), axis=-1)  # [N, A]
    # The last sum is 1 up to rounding. Scaled by it, no number below 1 lies beyond the last action.
    point = ops.expand_dims(uniform, -1) * cumulative[:, -1:]
    action = ops.sum(ops.cast(point >= cumulative, "int32"), axis=-1)
    # A number that float32 rounds up to 1 lies beyond it.
    return ops.minimum(action, logits.shape[-1] - 1)


class LossInputs(NamedTuple):
    """T transitions of B unrolls, each from x_{t-1} to x_t, as a loss needs them."""

    log_policy_tm1: Tensor  # [T, B, A], log π(.|x_{t-1})
    log_prob_tm1: Tensor  # [T, B], log π of the action taken
    log_rho_tm1: Tensor  # [T, B], log π - log μ of the action taken
    v_tm1: Tensor  # [T, B]
    v_t: Tensor  # [T, B]
    r_t: Tensor  # [T, B], scaled and clipped
    discount_t: Tensor  # [T, B], γ, or 0 where x_t is terminal
    mask_t: Tensor  # [T, B], 1 for real transitions, 0 for those out of an episode's last step


def loss_inputs(
    logits: Tensor, values: Tensor, unroll: Unroll, options: ActorCriticOptions
) -> LossInputs:
    """Return the transitions of an unroll, all float32.

    Args:
        logits: [R, B, A]; the last step's are not used.
        values: [R, B].
        unroll: the batch; `behaviour["logits"]` is [T, B, A].
        options: the hyperparameters.
    """
    log_policy = ops.log_softmax(ops.cast(logits, "float32")[:-1], axis=-1)  # [T, B, A]
    values = ops.cast(values, "float32")
    log_prob = log_prob_of(unroll.action, log_policy)  # [T, B]
    behaviour_logits = ops.cast(unroll.behaviour["logits"], "float32")
    behaviour_log_prob = log_prob_of(unroll.action, ops.log_softmax(behaviour_logits, axis=-1))

    r_t = clip_reward(unroll.reward[1:] * options.reward_scale, options, ops)

    terminal = unroll.terminated[1:]
    if options.life_loss_ends:
        terminal = terminal | unroll.life_lost[1:]
    return LossInputs(
        log_policy_tm1=log_policy,
        log_prob_tm1=log_prob,
        log_rho_tm1=log_prob - behaviour_log_prob,
        v_tm1=values[:-1],
        v_t=values[1:],
        r_t=r_t,
        discount_t=options.discount * (1.0 - ops.cast(terminal, "float32")),
        mask_t=ops.cast(~unroll.first[1:], "float32"),
    )


def log_prob_of(action: Tensor, log_policy: Tensor) -> Tensor:
    """Return the log probabilities [T, B] of actions.

    Args:
        action: [T, B] int32.
        log_policy: [T, B, A] float32, log π.
    """
    one_hot = ops.one_hot(action, log_policy.shape[-1], dtype="float32")
    return ops.sum(log_policy * one_hot, axis=-1)


def actor_critic_loss(
    inputs: LossInputs, target_tm1: Tensor, advantage_tm1: Tensor, options: ActorCriticOptions
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return policy gradient, half squared value error and entropy bonus, and scalars to log.

    All three are means over the batch's real transitions, so that masked ones neither count nor
    dilute. The square's half is the convention of IMPALA and SEED. Where a value coefficient is
    meant for the whole squared error, as 0.5 in OpenAI's Baselines, `baseline_cost` is its double.

    Args:
        inputs: the transitions.
        target_tm1: [T, B] float32, targets of V(x_{t-1}), without gradient.
        advantage_tm1: [T, B] float32, factors of log π(a_{t-1}), without gradient.
        options: the hyperparameters.
    """
    log_policy, mask = inputs.log_policy_tm1, inputs.mask_t
    policy_loss = -masked_mean(advantage_tm1 * inputs.log_prob_tm1, mask)
    baseline_loss = 0.5 * masked_mean(ops.square(target_tm1 - inputs.v_tm1), mask)
    entropy = masked_mean(-ops.sum(ops.exp(log_policy) * log_policy, axis=-1), mask)
    loss = policy_loss + options.baseline_cost * baseline_loss - options.entropy_cost * entropy
    return loss, {
        "policy_loss": policy_loss,
        "baseline_loss": baseline_loss,
        "entropy": entropy,
        "value_mean": masked_mean(inputs.v_tm1, mask),
        "advantage_mean": masked_mean(advantage_tm1, mask),
        "explained_variance": explained_variance(target_tm1, inputs.v_tm1, mask),
        "unmasked": ops.mean(mask),
    }
