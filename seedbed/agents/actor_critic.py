"""Base of the actor-critic agents: the model, how it acts, and the loss but for its targets."""

from typing import Any, NamedTuple

import keras
from keras import ops
from typing_extensions import override

from seedbed.agents.distributions import Categorical, Distribution, make_distribution
from seedbed.agents.options import ActorCriticOptions
from seedbed.agents.protocol import ActInputs, ActOutputs, OnPolicyAgent, Unroll
from seedbed.agents.rewards import clip_reward
from seedbed.networks.body import Body
from seedbed.networks.initializers import GlorotUniform, Orthogonal
from seedbed.networks.statistics import RunningStatistics
from seedbed.ops.masked import explained_variance, masked_mean
from seedbed.ops.n_step import returns_so_far
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor

# Of the return, below which rewards are not divided further, and of rewards that were divided.
_SMALLEST_VARIANCE, _LARGEST_REWARD = 1e-8, 10.0
# Largest log of an importance weight, either way: the logits of an actor that chooses its actions
# may be anything within their bounds, and a weight that is not finite is in every mean.
_MOST_LOG_RHO = 20.0

# Logit of an action that is not valid: its probability is 0, and no gradient passes.
INVALID = -1e5


class ActorCriticModel(keras.Model):
    """A body with a policy and a value.

    Args:
        body: the body.
        parameters: P, numbers of the policy's head.
        normalize_returns: whether it has statistics of the return.
    """

    def __init__(self, body: Body, parameters: int, normalize_returns: bool = False) -> None:
        super().__init__(name="model")
        self.body = body
        self.returns = RunningStatistics((), "returns", prior=1) if normalize_returns else None
        # Nearly uniform at first, and while the value's gradient makes the features grow: through
        # a head of usual size that alone ends exploration within a hundred updates of Pong.
        usual = body.initial_weights == "glorot"
        self.policy = keras.layers.Dense(
            parameters,
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
        """Return logits [R, B, P], values [R, B] and the state [B, S].

        Args:
            observation: [R, B, *stacked shape].
            previous_action: [R, B, *action], as of `Body`.
            previous_reward: [R, B] float32, 0 on first steps.
            first: [R, B] bool, steps before which the state is zeroed.
            state: [B, S] float32.
        """
        features, state = self.body(observation, previous_action, previous_reward, first, state)
        logits = self.policy(features)
        valid = self.body.valid_actions(observation)
        if valid is not None:
            logits = ops.where(valid, logits, INVALID)
        return logits, ops.squeeze(self.value(features), -1), state


class ActorCriticAgent(OnPolicyAgent):
    """An agent with an `ActorCriticModel`. Subclasses add `Options` and `objective`."""

    def __init__(self, options: Any, body: Body, actions: int) -> None:
        self.options = options
        self.body = body
        # The options of a user's agent may be other ones.
        is_known = isinstance(options, ActorCriticOptions)
        squash = is_known and options.squash
        self.policy = policy = make_distribution(body.action, squash)
        self.noise_columns = policy.noise_columns
        self.behaviour = {
            "logits": ArraySpec((policy.parameters,), "float32"),
            **policy.behaviour,
        }
        normalize_returns = is_known and options.normalize_returns
        self.model = ActorCriticModel(body, policy.parameters, normalize_returns)
        self.model(*body.symbols())

    @override
    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        (logits, _, state), _ = self.model.stateless_call(params, [], *inputs.one_step(), state)
        logits = logits[0]  # [N, P]
        if greedy:
            action, behaviour = self.policy.mode(logits)
        else:
            action, behaviour = self.policy.sample(logits, inputs.noise)
        return ActOutputs(action, {"logits": logits, **behaviour}, state)

    @override
    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        counted: Tensor | float = 0.0
        if self.model.returns is not None:
            unroll, counted = self._with_normalized_rewards(params, unroll)
        loss, scalars = self.objective(*self.forward(params, unroll), unroll)
        return loss + counted, scalars

    def objective(
        self, logits: Tensor, values: Tensor, unroll: Unroll
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss of a batch and scalars to log.

        Args:
            logits: [R, B, P] float32; the last step's are not used.
            values: [R, B] float32.
            unroll: the batch.
        """
        raise NotImplementedError

    def _with_normalized_rewards(self, params: Params, unroll: Unroll) -> tuple[Unroll, Tensor]:
        """Return the batch with other rewards, and 0, whose gradient counts its returns."""
        returns = self.model.returns
        assert returns is not None
        statistics = returns.of(self.model, params)
        deviation = ops.sqrt(ops.stop_gradient(statistics[1]) + _SMALLEST_VARIANCE)
        reward = ops.clip(unroll.reward / deviation, -_LARGEST_REWARD, _LARGEST_REWARD)

        # The returns so far of each transition, from the unroll's begin.
        discount_t, mask_t = discounts_and_mask(unroll, self.options)
        so_far = returns_so_far(unroll.reward[1:], discount_t, mask_t)
        counted = returns.loss(statistics, ops.reshape(so_far, (-1,)), ops.reshape(mask_t, (-1,)))
        return unroll._replace(reward=reward), counted

    def forward(self, params: Params, unroll: Unroll) -> tuple[Tensor, Tensor]:
        """Return logits [R, B, P] and values [R, B] of the training forward pass."""
        (logits, values, _), _ = self.model.stateless_call(
            params, [], *unroll.steps(), unroll.state
        )
        return logits, values


class LossInputs(NamedTuple):
    """T transitions of B unrolls, each from x_{t-1} to x_t, as a loss needs them."""

    entropy_tm1: Tensor  # [T, B], of π(.|x_{t-1})
    log_prob_tm1: Tensor  # [T, B], log π of the action taken
    log_rho_tm1: Tensor  # [T, B], log π - log μ of the action taken, clipped to ±20
    v_tm1: Tensor  # [T, B]
    v_t: Tensor  # [T, B]
    r_t: Tensor  # [T, B], scaled and clipped
    discount_t: Tensor  # [T, B], γ, or 0 where x_t is terminal
    mask_t: Tensor  # [T, B], 1 for real transitions, 0 for those out of an episode's last step


def loss_inputs(
    logits: Tensor,
    values: Tensor,
    unroll: Unroll,
    options: ActorCriticOptions,
    policy: Distribution | None = None,
) -> LossInputs:
    """Return the transitions of an unroll, all float32.

    Args:
        logits: [R, B, P]; the last step's are not used.
        values: [R, B].
        unroll: the batch; `behaviour["logits"]` is [T, B, P].
        options: the hyperparameters.
        policy: the distribution of the logits; None for a softmax.
    """
    policy = policy or Categorical(logits.shape[-1])
    logits = ops.cast(logits, "float32")[:-1]  # [T, B, P]
    values = ops.cast(values, "float32")
    log_prob = policy.log_prob(logits, unroll.action, unroll.behaviour)  # [T, B]
    behaviour_logits = ops.cast(unroll.behaviour["logits"], "float32")
    behaviour_log_prob = policy.log_prob(behaviour_logits, unroll.action, unroll.behaviour)

    r_t = clip_reward(unroll.reward[1:] * options.reward_scale, options, ops)

    discount_t, mask_t = discounts_and_mask(unroll, options)
    return LossInputs(
        entropy_tm1=policy.entropy(logits),
        log_prob_tm1=log_prob,
        log_rho_tm1=ops.clip(log_prob - behaviour_log_prob, -_MOST_LOG_RHO, _MOST_LOG_RHO),
        v_tm1=values[:-1],
        v_t=values[1:],
        r_t=r_t,
        discount_t=discount_t,
        mask_t=mask_t,
    )


def discounts_and_mask(unroll: Unroll, options: ActorCriticOptions) -> tuple[Tensor, Tensor]:
    """Return `discount_t` and `mask_t` of `LossInputs`, both [T, B] float32.

    Args:
        unroll: the batch.
        options: the hyperparameters.
    """
    terminal = unroll.terminated[1:]
    if options.life_loss_ends:
        terminal = terminal | unroll.life_lost[1:]
    discount_t = options.discount * (1.0 - ops.cast(terminal, "float32"))
    return discount_t, ops.cast(~unroll.first[1:], "float32")


def actor_critic_loss(
    inputs: LossInputs,
    target_tm1: Tensor,
    advantage_tm1: Tensor,
    options: ActorCriticOptions,
    surrogate_tm1: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return policy loss, half squared value error and entropy bonus, and scalars to log.

    All three are means over the batch's real transitions, so that masked ones neither count nor
    dilute. The square's half is the convention of IMPALA and SEED. Where a value coefficient is
    meant for the whole squared error, as 0.5 in OpenAI's Baselines, `baseline_cost` is its double.

    Args:
        inputs: the transitions.
        target_tm1: [T, B] float32, targets of V(x_{t-1}), without gradient.
        advantage_tm1: [T, B] float32, without gradient.
        options: the hyperparameters.
        surrogate_tm1: [T, B] float32, what the policy maximizes; None for the policy gradient's
            advantage times log π(a_{t-1}).
    """
    mask = inputs.mask_t
    if surrogate_tm1 is None:
        surrogate_tm1 = advantage_tm1 * inputs.log_prob_tm1
    policy_loss = -masked_mean(surrogate_tm1, mask)
    baseline_loss = 0.5 * masked_mean(ops.square(target_tm1 - inputs.v_tm1), mask)
    entropy = masked_mean(inputs.entropy_tm1, mask)
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
