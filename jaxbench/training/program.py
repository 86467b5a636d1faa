"""What is compiled: the pure functions of one run, from its seed to its scores.

Each function here is about one run; `jaxbench.training.layout` lifts it over a block of runs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxbench.base import Batch, Context, JaxbenchError, Model, Phase, Splits
from jaxbench.training.flat_optimizer import FlatOptimizer, flat_optimizer
from jaxbench.training.keys import Stage, stage_keys
from jaxbench.training.runs import Recipe

if TYPE_CHECKING:
    from jaxbench.base import Key, PyTree, Scalar

DIVERGENCE_FACTOR = 1e3
KEPT_STAGES: tuple[Stage, ...] = ("batch", "method")


class RunInput(NamedTuple):
    """What tells one run of a group from another: scalars, or arrays [runs] of them."""

    seed: Any
    training_seed: Any
    hyper: dict[str, Any]


class Fixed(NamedTuple):
    """What a run keeps from its start: its data, its initial parameters, and its keys' data.

    The keys of the stages are made once: each derivation is a loop that XLA:CPU compiles slowly.
    """

    data: Splits
    params0: PyTree
    keys: dict[Stage, jax.Array]


class Carry(NamedTuple):
    """What training changes.

    Attributes:
        params: the parameters.
        opt_state: the optimizer's state, with one vector where it holds something for each
            parameter (`flat_optimizer`).
        state: the intervention's state.
        diverged_at: the step at which the run diverged, or -1.
    """

    params: PyTree
    opt_state: PyTree
    state: PyTree
    diverged_at: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """The functions of one run for one recipe; `consts` is the shared argument of each."""

    recipe: Recipe

    @property
    def model(self) -> Model:
        """The model as the intervention wraps it."""
        return self.recipe.intervention.wrap_model(self.recipe.model)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps an epoch; a last batch that is not full is left out of that epoch."""
        size, batch = self.recipe.train_shape[0], self.recipe.schedule.batch_size
        if batch > size:
            raise JaxbenchError(
                f"training.batch_size is {batch}, but the track has only {size} training samples; "
                f"make it {size} or less"
            )
        return size // batch

    def start(self, consts: PyTree, run: RunInput) -> tuple[Fixed, Carry]:
        """Make a run's data, initial parameters, optimizer state and intervention state."""
        track, intervention = self.recipe.track, self.recipe.intervention
        own = dict.fromkeys(("init", *KEPT_STAGES), run.training_seed)
        keys = stage_keys({"data": run.seed, **own})
        data = track.generate(keys["data"])
        params0 = self.model.init(keys["init"], data.train.inputs[:1])
        kept = {stage: jax.random.key_data(keys[stage]) for stage in KEPT_STAGES}
        fixed = Fixed(data, params0, kept)
        ctx = self.context(consts, run, fixed)
        opt_state = self.optimizer(ctx).on_vector.init(params0)
        state = intervention.init_state(ctx)
        return fixed, Carry(params0, opt_state, state, jnp.array(-1, jnp.int32))

    def epoch(
        self, shared: tuple[PyTree, jax.Array], run: RunInput, fixed: Fixed, carry: Carry
    ) -> tuple[Carry, dict[str, Scalar]]:
        """Train for one epoch; `shared` is (consts, the epoch's number)."""
        consts, number = shared
        intervention = self.recipe.intervention
        ctx = self.context(consts, run, fixed)
        optimizer = self.optimizer(ctx)
        train = fixed.data.train
        limit = DIVERGENCE_FACTOR * self.recipe.track.constant_loss(train.targets)

        def step(carry: Carry, at: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Carry, Any]:
            step_number, indices, (apply_key, term_key, update_key) = at
            batch = jax.tree.map(lambda leaf: leaf[indices], train)

            def objective(params: PyTree) -> tuple[Scalar, dict[str, Scalar]]:
                outputs, intermediates = ctx.model.apply(
                    params, batch.inputs, ctx=ctx, state=carry.state, key=apply_key
                )
                loss = self.recipe.track.loss(outputs, batch.targets)
                if intervention.loss_term is None:
                    return loss, {"train_loss": loss}
                term = intervention.loss_term(
                    ctx, params, carry.state, batch, outputs, intermediates, step_number, term_key
                )
                return loss + term, {"train_loss": loss, "loss_term": term}

            (value, log), gradient = jax.value_and_grad(objective, has_aux=True)(carry.params)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
                updates, opt_state = optimizer.on_vector.update(
                    gradient,
                    carry.opt_state,
                    carry.params,
                    value=value,
                    intervention_state=carry.state,
                    step=step_number,
                    key=update_key,
                )
            params = optax.apply_updates(carry.params, updates)
            bad = ~jnp.isfinite(value) | (log["train_loss"] > limit)
            first = bad & (carry.diverged_at < 0)
            diverged_at = jnp.where(first, step_number, carry.diverged_at)
            return Carry(params, opt_state, carry.state, diverged_at), log

        steps = self.steps_per_epoch
        key = self._epoch_keys(fixed, number)
        order = self._batch_order(key["batch"], len(train.inputs), steps)
        keys = jax.random.split(key["method"], (steps, 3))
        numbers = number * steps + jnp.arange(steps, dtype=jnp.int32)
        carry, logs = jax.lax.scan(step, carry, (numbers, order, keys))
        log = {name: values.mean() for name, values in logs.items()}
        if intervention.after_epoch is not None:
            opt_state = optimizer.unflatten(carry.opt_state, carry.params)
            *done, own = intervention.after_epoch(ctx, carry.params, opt_state, carry.state, number)
            carry = self._changed(carry, optimizer, *done)
            log |= own
        return carry, log

    def surgery(self, phase: Phase) -> Any:
        """The function that applies a phase's surgery to one run."""

        def operate(consts: PyTree, run: RunInput, fixed: Fixed, carry: Carry) -> Carry:
            assert phase.surgery is not None
            ctx = self.context(consts, run, fixed)
            optimizer = self.optimizer(ctx)
            opt_state = optimizer.unflatten(carry.opt_state, carry.params)
            done = phase.surgery(ctx, carry.params, opt_state, carry.state)
            return self._changed(carry, optimizer, *done)

        return operate

    def evaluate(
        self, consts: PyTree, run: RunInput, fixed: Fixed, carry: Carry
    ) -> dict[str, Scalar]:
        """Score the trained parameters on the validation and the test split.

        Both at once: a model that is compiled once compiles twice as fast.
        """
        ctx = self.context(consts, run, fixed)

        _, validation, test = fixed.data
        inputs = jax.tree.map(lambda *both: jnp.concatenate(both), validation.inputs, test.inputs)
        outputs, _ = ctx.model.apply(carry.params, inputs, ctx=ctx, state=carry.state)
        size = len(validation.targets)

        def score(split: Batch, rows: slice) -> Scalar:
            own = jax.tree.map(lambda leaf: leaf[rows], outputs)
            return self.recipe.track.score(own, split.targets)

        return {
            "validation": score(validation, slice(size)),
            "test": score(test, slice(size, None)),
        }

    def measure(
        self, consts: PyTree, run: RunInput, fixed: Fixed, carry: Carry
    ) -> dict[str, jax.Array]:
        """Measure the intervention's quantities on the carry's parameters and state."""
        measure = self.recipe.intervention.measure
        assert measure is not None
        ctx = self.context(consts, run, fixed)
        return measure(ctx, carry.params, carry.state, fixed.data.test)

    def context(self, consts: PyTree, run: RunInput, fixed: Fixed) -> Context:
        """What the hooks of this run may read."""
        size = self.recipe.intervention.probe_size
        return Context(
            key=jax.random.wrap_key_data(fixed.keys["method"]),
            hyper=run.hyper,
            model=self.model,
            params0=fixed.params0,
            probe=jax.tree.map(lambda leaf: leaf[:size], fixed.data.train),
            consts=consts,
            total_steps=self.recipe.schedule.epochs * self.steps_per_epoch,
            track=self.recipe.track,
        )

    def optimizer(self, ctx: Context) -> FlatOptimizer:
        """The optimizer as the intervention wraps it."""
        optimizer = optax.adam(ctx.hyper["learning_rate"])
        clip = self.recipe.schedule.clip_norm
        if clip is not None:
            optimizer = optax.chain(optax.clip_by_global_norm(clip), optimizer)
        wrap = self.recipe.intervention.wrap_optimizer
        return flat_optimizer(
            optimizer, lambda inner: optax.with_extra_args_support(wrap(inner, ctx))
        )

    def _changed(
        self,
        carry: Carry,
        optimizer: FlatOptimizer,
        params: PyTree,
        opt_state: PyTree,
        state: PyTree,
    ) -> Carry:
        """The carry after a hook that changed it; the hook's optimizer state is a tree."""
        flat = optimizer.flatten(opt_state, params)
        return Carry(params, flat, state, carry.diverged_at)

    def _epoch_keys(self, fixed: Fixed, epoch: jax.Array) -> dict[Stage, Key]:
        """Each stage's key folded with the epoch, by one derivation."""
        keys = jax.random.wrap_key_data(jnp.stack([fixed.keys[stage] for stage in KEPT_STAGES]))
        folded = jax.vmap(jax.random.fold_in, (0, None))(keys, epoch)
        return dict(zip(KEPT_STAGES, folded, strict=True))

    def _batch_order(self, key: Key, samples: int, steps: int) -> jax.Array:
        size = self.recipe.schedule.batch_size
        return jax.random.permutation(key, samples)[: steps * size].reshape(steps, size)
