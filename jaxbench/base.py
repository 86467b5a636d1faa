"""The nouns of jaxbench as types: read this file first.

A *study* says "this idea against that tuned baseline, on this track".  A `Track` gives seeded
data, a loss and a score.  A `Model` is a pair of pure functions over a parameter pytree.  An
`Intervention` is what an idea changes, as pure hooks that each default to "do nothing".  A
`Signature` is a number that the idea's explanation predicts before looking.  The engine
(`jaxbench.training`) turns a list of runs into trained runs; `jaxbench.judging` turns their scores
into a verdict.

This module imports neither jax nor numpy, so that every other part may import it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

if TYPE_CHECKING:
    import jax
    import numpy as np
    import optax
    from jaxtyping import Array, Float

    Key = jax.Array
    PyTree = Any
    Scalar = Float[Array, ""]
    MakeScan = Callable[[Callable[[Any, Any, Any], Any]], Callable[..., tuple[Any, Any]]]


class JaxbenchError(Exception):
    """An error that the user can mend: its text says what was expected, what came, what to do."""


class Progress:
    """Whom a study tells how far it is; this one says nothing, others inherit from it."""

    def stage(self, name: str) -> None:
        """A stage begins, such as a compilation."""

    def start(self, total: int, label: str) -> None:
        """Work of `total` equal parts begins, and replaces what was under way."""

    def advance(self, count: int) -> None:
        """`count` more parts are done."""

    def close(self) -> None:
        """Everything is done, or given up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# --------------------------------------------------------------------------------------------------
# Tracks
# --------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Samples along the leading axis: `inputs` [samples, ...], `targets` [samples, ...]."""

    inputs: Any
    targets: Any


class Splits(NamedTuple):
    """One seed's data: train, tune on validation, judge on test."""

    train: Batch
    validation: Batch
    test: Batch


@dataclasses.dataclass(frozen=True)
class Metric:
    """What a score is: its name, unit and the direction in which it improves."""

    name: str
    unit: str
    direction: Literal["lower", "higher"]


@dataclasses.dataclass(frozen=True)
class DataFiles:
    """Marks a track's option that names a file or a folder of data: what lies there is the data.

    `Annotated[str, DataFiles()]`: the digest of its content becomes part of the config's.

    Attributes:
        patterns: of a folder's files that count, such as `*-ubyte*`.
    """

    patterns: tuple[str, ...] = ("*",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Track:
    """A task: seeded data, a loss, a score with its direction and unit, reference scores.

    Attributes:
        name: the name under which it is registered (its file's name).
        summary: one line for people.
        options: the options that it was built with, defaults filled in.
        metric: name, unit and direction of `score`.
        output_size: width of the outputs that a model must give.
        features: what it offers, for matching models and ideas: `sequence` or `tabular` inputs,
            `regression` or `classification`.
        generate: `(key) -> Splits`, pure and traceable: one seed's data, made or drawn on
            the device.
        loss: `(outputs, targets) -> scalar`, the mean training loss of a batch.
        score: `(outputs, targets) -> scalar` in the metric's unit.
        constant_loss: `(targets) -> scalar`, the loss of the best constant prediction on these
            targets; a run whose training loss exceeds a large multiple of it has diverged.
        references: `(splits as numpy arrays) -> {name: score}`, fitted on train and scored on test
            by methods that need no neural network.
        longer_test: `(key, steps) -> Batch`, test sequences of another length, or None where the
            track has none.
        free_run: `(recurrence, params, inputs) -> outputs`, a recurrent model run on its own
            outputs; None where `apply` reads nothing else anyway.
    """

    name: str
    summary: str
    options: Mapping[str, Any]
    metric: Metric
    output_size: int
    features: frozenset[str]
    generate: Callable[[Key], Splits]
    loss: Callable[[Any, Any], Scalar]
    score: Callable[[Any, Any], Scalar]
    constant_loss: Callable[[Any], Scalar]
    references: Callable[[Splits], dict[str, float]]
    longer_test: Callable[[Key, int], Batch] | None = None
    free_run: Callable[[Recurrence, PyTree, Any], Any] | None = None


# --------------------------------------------------------------------------------------------------
# Models
# --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """The recurrence of a recurrent model, for ideas that act inside it.

    Attributes:
        initial_hidden: `(params, batch_shape) -> hidden [*batch_shape, hidden]`.
        step: `(params, hidden [..., hidden], input [..., features]) -> hidden`, one time step.
        readout: `(params, hidden [..., hidden]) -> output [..., outputs]`.
        scaled_step: `(params, gains, hidden [..., hidden], input [..., features]) -> hidden`, the
            step with every leaf multiplied by its own gain, `gains` being a tree like `params` of
            arrays [...], one gain a sample; None where the model offers no faster way than to
            scale the leaves themselves.
        inverse: `(params, hidden after, input) -> hidden before`, what undoes `step` but for
            rounding; None where the cell has no such inverse.
        gates: `(params, hidden, input) -> (update, candidate)` of a gated cell, whose step is
            `(1 - update) candidate + update hidden`; None for other cells.
    """

    initial_hidden: Callable[[PyTree, tuple[int, ...]], Any]
    step: Callable[[PyTree, Any, Any], Any]
    readout: Callable[[PyTree, Any], Any]
    scaled_step: Callable[[PyTree, PyTree, Any, Any], Any] | None = None
    inverse: Callable[[PyTree, Any, Any], Any] | None = None
    gates: Callable[[PyTree, Any, Any], tuple[Any, Any]] | None = None


@dataclasses.dataclass(frozen=True)
class MessagePassing:
    """The update of a network of nodes, for ideas that choose which nodes update.

    In a time step with input `x`, a model does `sweeps` synchronous sweeps
    `h <- h + damping (F(h, x) - h)`, where `F_i` reads node `i` and its neighbours.

    Attributes:
        neighbours: of each node [nodes, degree], in the order in which `rule` expects them.
        sweeps: of each time step.
        damping: how far a node goes towards its new value.
        initial_hidden: `(params, batch_shape) -> hidden [*batch_shape, nodes, width]`.
        drive: `(params, input [..., features]) -> drive [..., nodes, width]`, the part of the
            update that does not depend on hidden states.
        update: `(params, hidden [..., nodes, width], drive) -> F [..., nodes, width]`, all nodes.
        rule: `(params, own [..., n, width], around [..., n, degree, width], drive [..., n, width])
            -> F [..., n, width]`, the same for any n nodes, from their own and their neighbours'
            states.
        readout: `(params, hidden [..., nodes, width]) -> output [..., outputs]`.
    """

    neighbours: Any
    sweeps: int
    damping: float
    initial_hidden: Callable[[PyTree, tuple[int, ...]], Any]
    drive: Callable[[PyTree, Any], Any]
    update: Callable[[PyTree, Any, Any], Any]
    rule: Callable[[PyTree, Any, Any, Any], Any]
    readout: Callable[[PyTree, Any], Any]


class UnitSlice(NamedTuple):
    """Where hidden units lie in one leaf: unit `first + j` owns index `start + j` along `axis`.

    Attributes:
        leaf: the leaf's path from the root: dict keys, sequence indices, attribute names.
        axis: the axis along which the units lie.
        role: `incoming` (makes the unit) or `outgoing` (carries its value onwards); the column and
            the row of a recurrent kernel are two slices of one leaf.
        start: the index of the first unit of the slice.
        bias: of an outgoing slice, the leaf to which a constant value `v_j` of unit `j` adds
            `v_j leaf[j]`, for filling removed units with their means; None where there is none.
        first: the number of the slice's first unit.
        units: how many units it holds; None for all from the first on.
    """

    leaf: tuple[str | int, ...]
    axis: int
    role: Literal["incoming", "outgoing"]
    start: int = 0
    bias: tuple[str | int, ...] | None = None
    first: int = 0
    units: int | None = None


@dataclasses.dataclass(frozen=True)
class UnitLayer:
    """A layer of hidden units that ideas may score, mask or remove, described by data.

    Other groups of parameters that go together, such as a unit's gate or the weights of an input,
    are described in the same way, with outgoing slices only: those that their mask multiplies.

    Attributes:
        name: short, unique within the model.
        size: how many units.
        slices: where they lie.
        removable: whether the network without some of them is a smaller one of its kind; the
            parameters of a gate can be 0, but its unit needs it.
    """

    name: str
    size: int
    slices: tuple[UnitSlice, ...]
    removable: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A network behind pure functions; its parameters are a plain nested dict.

    Attributes:
        name, summary, options: as for a track.
        features: what it is, for matching tracks and ideas, such as `recurrent`.
        init: `(key, inputs [samples, ...]) -> params`.
        apply: `(params, inputs, *, ctx=None, state=None, key=None) -> (outputs, intermediates)`;
            `intermediates` is a dict of arrays (hidden states, pre-activations) that XLA drops
            where nobody uses them.  The keyword arguments are for interventions that wrap it.  It
            is differentiated in reverse mode; a recurrent model may have one of its own.
        flops: `(input_shape of one sample) -> float`, floating-point operations of one forward
            pass of one sample, counted analytically (a multiply-add is two).
        recurrence: the recurrence of a recurrent model, else None.
        message_passing: the node update of a network on a graph, else None.
        unit_layers: its layers of hidden units.
        parameter_groups: other groups of its parameters by their kind, `gates` or `inputs`:
            `(params) -> UnitLayer`, because their number may depend on the inputs' width.
        resized: `({layer: units}) -> Model`, the same network with other numbers of hidden units;
            None where it cannot be.
        solver_evaluations: `(params, inputs) -> [samples]`, on the host and in float64, how often
            an adaptive solver evaluates the network's differential equation for each sample; None
            where there is none.
        reads: the inputs that it reads, in words, for the message that a track gives others.
    """

    name: str
    summary: str
    options: Mapping[str, Any]
    features: frozenset[str]
    init: Callable[[Key, Any], PyTree]
    apply: Callable[..., tuple[Any, dict[str, Any]]]
    flops: Callable[[tuple[int, ...]], float]
    recurrence: Recurrence | None = None
    message_passing: MessagePassing | None = None
    unit_layers: tuple[UnitLayer, ...] = ()
    parameter_groups: Mapping[str, Callable[[PyTree], UnitLayer]] = dataclasses.field(
        default_factory=dict
    )
    resized: Callable[[Mapping[str, int]], Model] | None = None
    solver_evaluations: Callable[[PyTree, Any], Any] | None = None
    reads: str = ""


# --------------------------------------------------------------------------------------------------
# Interventions
# --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Hyper:
    """A dynamic hyperparameter: a traced scalar of each run, so its value never recompiles.

    Attributes:
        default: its value where a study names none.
        low, high: the closed range of values that make sense.
        summary: one line, with the unit.
        neutral: the value at which the intervention does nothing, or None.
    """

    default: float
    low: float
    high: float
    summary: str
    neutral: float | None = None


@dataclasses.dataclass(frozen=True)
class Context:
    """What every hook of a run may read.

    Attributes:
        key: the run's own `method` key; consuming it moves neither data, init nor batch order.
        hyper: {name: scalar} of this run, the learning rate under `learning_rate` included.
        model: the model that trains, after `wrap_model`.
        params0: the initial parameters.
        probe: the first `probe_size` training samples, a `Batch`.
        consts: what `prepare` returned, shared by all runs.
        total_steps: optimizer steps of the whole training, over all phases.
        measured: in `measure_host`, what `measure` returned for this run; else empty.
        track: the track, for its score.
    """

    key: Key
    hyper: Mapping[str, Scalar]
    model: Model
    params0: PyTree
    probe: Batch
    consts: PyTree
    total_steps: int
    measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    track: Track | None = None


class Phase(NamedTuple):
    """A stretch of training: `epochs` of it, then `surgery` if there is one.

    `surgery(ctx, params, opt_state, state) -> (params, opt_state, state)` is compiled by itself
    and applied to all runs at once.
    """

    epochs: int
    surgery: Callable[..., tuple[PyTree, PyTree, PyTree]] | None = None


def nothing_prepared(key: Key) -> PyTree:
    """The default `prepare`: no constants."""
    del key
    return ()


def same_model(model: Model) -> Model:
    """The default `wrap_model`: the model as it is."""
    return model


def no_state(ctx: Context) -> PyTree:
    """The default `init_state`: no state."""
    del ctx
    return ()


def same_optimizer(optimizer: optax.GradientTransformation, ctx: Context) -> Any:
    """The default `wrap_optimizer`: the optimizer as it is."""
    del ctx
    return optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A measured scalar by which arms can be compared, beside the score; fixed before looking.

    Two arms are comparable by it where their declarations are equal.

    Attributes:
        name: of the scalar that `measure` returns.
        summary: one line, with everything that decides its value.
        unit: its unit; empty where it is the score's.
        direction: in which it improves; None where that is the score's.
    """

    name: str
    summary: str
    unit: str = ""
    direction: Literal["lower", "higher"] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intervention:
    """What an idea changes: pure hooks over parameter pytrees, each defaulting to "do nothing".

    An intervention file exposes `build(**static) -> Intervention`.  Static values change shapes or
    code; with the model's structure and the data's shapes they form the *program key*, and runs
    with equal keys train as one compiled program.  Values in `hyper` are traced.

    Attributes:
        name, summary: as for a track.
        static: the static values that it was built with, defaults filled in.
        hyper: its dynamic hyperparameters; the engine adds `learning_rate`.
        requires: features that the model or the track must offer.
        limitations: what the reader of a verdict should know about the idea itself.
        probe_size: how many training samples `ctx.probe` holds.
        prepare: `(key) -> consts`, on the host, once a study.
        wrap_model: `(model) -> model`, another forward pass.
        init_state: `(ctx) -> state`, per-run state of static shape.
        loss_term: `(ctx, params, state, batch, outputs, intermediates, step, key) -> scalar`, added
            to the track's loss.
        wrap_optimizer: `(optimizer, ctx) -> optimizer`; its `update` receives the extra arguments
            `value` (the loss), `intervention_state`, `step` and `key`.
        after_epoch: `(ctx, params, opt_state, state, epoch) -> (params, opt_state, state, log)`,
            inside the compiled program; `log` is {name: scalar}.
        phases: stretches of training with surgery between them; empty means one stretch.
        measure: `(ctx, params, state, test) -> {name: array of fixed shape}`, compiled, over all
            evaluation runs of an idea's arm and of its baseline's, and of the idea's runs once more
            at `params0` as the untrained control.
        measure_host: the same signature with numpy arrays, one run at a time on the host, for
            ragged or CPU-only work.
        host_only: names of what `measure` returns for `measure_host` alone, which no report keeps.
        units_left: `(model) -> {layer: units}`, of an idea that removes hidden units, for timing
            the smaller network against the dense one.
        scans: `(model) -> {name: (emit) -> scan}`, of an idea about backward passes: ways to go
            along the model's recurrence, the usual one first, whose gradients the report compares
            in memory and time.  `scan(params, hidden, inputs) -> (hidden, outputs)` gives
            `emit(params, hidden, input)` at each step.
        surgery_static: names of static values, and of hyperparameters, that only surgeries,
            `measure`, `measure_host` and the lengths of phases depend on: arms that differ in
            nothing else train by the same programs, and share their training up to the first
            surgery if it comes at one time.
        signatures: what the idea's explanation predicts.
        endpoints: scalars among what `measure` returns by which a study may compare arms too.
    """

    name: str
    summary: str
    static: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hyper: Mapping[str, Hyper] = dataclasses.field(default_factory=dict)
    requires: frozenset[str] = frozenset()
    limitations: tuple[str, ...] = ()
    probe_size: int = 64
    prepare: Callable[[Key], PyTree] = nothing_prepared
    wrap_model: Callable[[Model], Model] = same_model
    init_state: Callable[[Context], PyTree] = no_state
    loss_term: Callable[..., Scalar] | None = None
    wrap_optimizer: Callable[[Any, Context], Any] = same_optimizer
    after_epoch: Callable[..., tuple[PyTree, PyTree, PyTree, dict[str, Scalar]]] | None = None
    phases: tuple[Phase, ...] = ()
    measure: Callable[..., dict[str, Any]] | None = None
    measure_host: Callable[..., dict[str, Any]] | None = None
    host_only: tuple[str, ...] = ()
    units_left: Callable[[Model], Mapping[str, int]] | None = None
    scans: Callable[[Model], Mapping[str, MakeScan]] | None = None
    surgery_static: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def measures(self) -> bool:
        """Whether it measures anything."""
        return self.measure is not None or self.measure_host is not None


# --------------------------------------------------------------------------------------------------
# Signatures
# --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one set of measurements says of a signature.

    Attributes:
        passed: whether the prediction held; None where it could not be tested.
        values: the numbers behind it, for the report.
        error: size of the prediction's error, for its skill against the null, or None.
        reason: one sentence, with the numbers in it.
    """

    passed: bool | None
    values: Mapping[str, Any]
    error: float | None
    reason: str


class Compared(NamedTuple):
    """Two measured quantities of one shape that a report draws against each other.

    Attributes:
        predicted: the prediction's name.
        measured: the measurement's.
        equal: whether they should be equal; else the one only goes with the other.
    """

    predicted: str
    measured: str
    equal: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """A prediction of the idea's explanation, fixed before looking, and how it is checked.

    Attributes:
        name: short, unique within the intervention.
        claim: the prediction in words.
        formula: the prediction as an equation, with its source.
        tolerance: the named limits that `evaluate` applies.
        evaluate: `({quantity: array [runs, ...]}) -> Finding`, numpy only; the quantities are what
            `measure` and `measure_host` returned, stacked over runs.
        pool: the arms whose evaluation runs are put together as the subject of the test: `idea` and
            `baseline` of the comparison that is judged, or `ideas`, every idea's arm of the study
            with the same intervention.
        null: `(samples) -> samples` with the null's prediction in place of the idea's; the
            signature must beat it (skill `1 - error / error_null` of at least one half).
        null_name: what the null predicts, in words.
        controls: negative controls on which the prediction must fail: `baseline`, and `untrained`,
            the ideas' runs of the pool at their initial parameters.
        reported_rule: True for the rule of the reference reports, which has neither null nor
            controls; it is reported beside and decides nothing.
        compared: what a report draws of it, prediction against measurement; it decides nothing.
    """

    name: str
    claim: str
    formula: str
    tolerance: Mapping[str, float]
    evaluate: Callable[[Mapping[str, np.ndarray]], Finding]
    pool: tuple[Literal["idea", "baseline", "ideas"], ...] = ("idea",)
    null: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] | None = None
    null_name: str = ""
    controls: tuple[Literal["untrained", "baseline"], ...] = ()
    reported_rule: bool = False
    compared: Compared | None = None
