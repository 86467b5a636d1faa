"""Certificates that a rectified unit is on, or off, for every input of a domain.

| domain | what it is | where it decides |
|---|---|---|
| `sample` | some inputs | every layer, of these inputs only |
| `hull` | their convex hull | the first layer, exactly: extremes lie at data points |
| `box` | an interval for each input | interval bounds: exact in the first layer, sound in others |
| `milp` | the same box | exact in every layer, by mixed-integer programming on the host |
| `everywhere` | all inputs | signs of weights alone |

Sound in floating point: bounds are widened by the rounding error of their own computation and of
the network's evaluation, `gamma_k (|h| |W| + |b|)` with `gamma_k = k u / (1 - k u)` (Higham 2002,
Accuracy and stability of numerical algorithms, section 3.1), so that they hold for the values in
exact arithmetic and for the computed ones, in whatever order their sums are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from jaxbench.base import JaxbenchError
from jaxbench.interventions.relu_network import Affine, Network, check_network, preacts, relu

if TYPE_CHECKING:
    from jaxtyping import Float, Int

OFF, CROSSING, ON = -1, 0, 1
MILP_MARGIN = 1e-6
"""HiGHS meets constraints and integrality to 1e-6; the bounds are widened by as much."""


class Interval(NamedTuple):
    """Bounds of each unit's pre-activation, `low <= a <= high` [units]."""

    low: Any
    high: Any


def gamma(terms: int, dtype: Any) -> float:
    """Give `gamma_k = k u / (1 - k u)`, the relative rounding error of a sum of `k` products.

    Raises:
        JaxbenchError: so many terms that nothing can be said, `k u >= 1`.
    """
    error = terms * float(jnp.finfo(dtype).eps) / 2
    if error >= 1:
        raise JaxbenchError(
            f"rounding errors of {terms} terms in {jnp.dtype(dtype)} cannot be bounded; compute "
            "the certificates in a wider type"
        )
    return error / (1 - error)


def signs(bounds: Interval) -> Any:
    """Say which units are on (`low >= 0`), off (`high <= 0`) or neither: 1, -1, 0 [units]."""
    xp = _namespace(bounds.low)
    on, off = xp.asarray(ON, xp.int32), xp.asarray(OFF, xp.int32)
    neither = xp.asarray(CROSSING, xp.int32)
    return xp.where(bounds.high <= 0, off, xp.where(bounds.low >= 0, on, neither))


# --------------------------------------------------------------------------------------------------
# Samples, their hull, and everything
# --------------------------------------------------------------------------------------------------


def sample_bounds(layers: Network, inputs: Float[Any, "samples inputs"]) -> tuple[Interval, ...]:
    """Give the least and the greatest pre-activation among some inputs, for each hidden layer."""
    return tuple(Interval(a.min(axis=0), a.max(axis=0)) for a in preacts(layers, inputs))


def hull_bounds(layers: Network, inputs: Float[Any, "samples inputs"]) -> Interval:
    """Bound the first hidden layer over the convex hull of some inputs.

    An affine function has its extremes at the hull's corners, which are data; deeper layers have
    not, so there is no such bound for them.
    """
    first = Affine(*layers[0])
    a = preacts(layers, inputs)[0]
    margin = _margin(first, abs(inputs).max(axis=0))
    return Interval(a.min(axis=0) - margin, a.max(axis=0) + margin)


def everywhere(layers: Network) -> tuple[Int[Any, " units"], ...]:
    """Say which hidden units are on or off for all inputs whatsoever, by the signs of weights.

    In the first layer those whose weights are all 0, by their bias.  In later ones, whose inputs
    are never negative, those whose weights and bias all have one sign.
    """
    found = []
    for place, (kernel, bias) in enumerate(layers[:-1]):
        unbounded = kernel == 0
        rises = unbounded if place == 0 else kernel >= 0
        falls = unbounded if place == 0 else kernel <= 0
        xp = _namespace(bias)
        never, infinite = bias * 0, xp.full_like(bias, xp.inf)
        on, off = rises.all(axis=0) & (bias >= 0), falls.all(axis=0) & (bias <= 0)
        found.append(
            signs(Interval(xp.where(on, never, -infinite), xp.where(off, never, infinite)))
        )
    return tuple(found)


# --------------------------------------------------------------------------------------------------
# A box, by intervals
# --------------------------------------------------------------------------------------------------


def ibp(
    layers: Network, low: Float[Any, " inputs"], high: Float[Any, " inputs"]
) -> tuple[Interval, ...]:
    """Bound the pre-activations of every layer over a box, the outputs last, by interval bounds.

    `a^+- = W^+ h^+- + W^- h^-+ + b`, widened by rounding errors: exact in the first layer, sound in
    later ones (Gowal et al. 2018, On the effectiveness of interval bound propagation).

    Args:
        layers: the network.
        low: the box's lower ends.
        high: its upper ends.

    Raises:
        JaxbenchError: a box of another width than the inputs, or with `low > high`.
    """
    check_network(layers)
    check_box(layers, low, high)
    bounds = []
    for kernel, bias in layers:
        up, down = relu(kernel), -relu(-kernel)
        margin = _margin(Affine(kernel, bias), _larger(low, high))
        lowest = _product(low, up) + _product(high, down) + bias - margin
        highest = _product(high, up) + _product(low, down) + bias + margin
        bounds.append(Interval(lowest, highest))
        low, high = relu(lowest), relu(highest)
    return tuple(bounds)


def check_box(layers: Network, low: Any, high: Any) -> None:
    """Refuse a box of another width than the network's inputs, or with `low > high`."""
    width = np.shape(layers[0][0])[:1]
    traced = isinstance(low, jax.core.Tracer) or isinstance(high, jax.core.Tracer)
    if np.shape(low) != width or np.shape(high) != width or (not traced and np.any(low > high)):
        raise JaxbenchError(
            f"the box needs {width[0]} lows and as many highs, none below its low; got low {low} "
            f"and high {high}"
        )


def _larger(low: Any, high: Any) -> Any:
    return _namespace(low).maximum(abs(low), abs(high))


def _margin(layer: Affine, size: Float[Any, " inputs"]) -> Any:
    """Bound the rounding errors of a layer whose inputs are at most `size`, `gamma_k (s|W| + |b|)`.

    With `n` inputs, `k = 3 n + 8` covers the two sums of a bound, the evaluation of the network and
    the rounding of this margin itself; the smallest normal number covers underflow.
    """
    terms = 3 * len(layer.kernel) + 8
    magnitude = _product(size, abs(layer.kernel)) + abs(layer.bias)
    tiny = float(jnp.finfo(layer.kernel.dtype).tiny)
    return gamma(terms, layer.kernel.dtype) * magnitude + terms * tiny


def _product(vector: Any, matrix: Any) -> Any:
    """Multiply in the arrays' own precision, on accelerators too."""
    if isinstance(matrix, np.ndarray):
        return vector @ matrix
    return jnp.matmul(vector, matrix, precision=jax.lax.Precision.HIGHEST)


def _namespace(array: Any) -> Any:
    return np if isinstance(array, np.ndarray | np.generic) else jnp


# --------------------------------------------------------------------------------------------------
# A box, exactly
# --------------------------------------------------------------------------------------------------


class UnitBounds(NamedTuple):
    """Bounds of one unit, and whether each is exact (up to the margin) or cut short by time."""

    low: float
    high: float
    exact_low: bool
    exact_high: bool


def milp_bounds(
    layers: Network,
    low: Float[Any, " inputs"],
    high: Float[Any, " inputs"],
    layer: int,
    unit: int,
    seconds: float = 60.0,
) -> UnitBounds:
    """Bound one hidden unit's pre-activation over a box exactly, by mixed-integer programming.

    Least and greatest `a` with, for each unit before it, `h >= a`, `h >= 0`, `h <= a - l (1 - d)`,
    `h <= u d` and `d` in {0, 1}, where `l <= a <= u` are its interval bounds (Tjeng, Xiao and
    Tedrake 2019); solved by HiGHS in float64.  The solver's dual bound is taken, widened by its
    tolerance, so that a run cut short gives a sound bound too; interval bounds are never exceeded.

    Args:
        layers: the network.
        low: the box's lower ends.
        high: its upper ends.
        layer: which hidden layer, counted from 0.
        unit: which of its units, counted from 0.
        seconds: longest time of each of the two solutions.

    Raises:
        JaxbenchError: as for `ibp`, or a unit that is not there.
    """
    exact = [Affine(*(np.asarray(leaf, np.float64) for leaf in each)) for each in layers]
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    intervals = ibp(exact, low, high)
    if not 0 <= layer < len(layers) - 1 or not 0 <= unit < exact[layer].bias.size:
        raise JaxbenchError(
            f"there is no unit {unit} in hidden layer {layer}; the hidden layers have "
            f"{[each.bias.size for each in exact[:-1]]} units, counted from 0"
        )
    program = _Program.of(exact[:layer], intervals[:layer], low, high)
    weights = exact[layer].kernel[:, unit]
    objective = np.zeros(program.lower.size)
    objective[program.inputs] = weights
    offset = exact[layer].bias[unit]
    size = np.maximum(np.abs(low), np.abs(high))
    if layer:
        size = relu(intervals[layer - 1].high)
    margin = MILP_MARGIN * (1 + size @ np.abs(weights) + abs(offset))
    interval = Interval(*(float(end[unit]) for end in intervals[layer]))
    lowest, exact_low = program.minimum(objective, seconds)
    highest, exact_high = program.minimum(-objective, seconds)
    return UnitBounds(
        max(interval.low, lowest + offset - margin),
        min(interval.high, -highest + offset + margin),
        exact_low,
        exact_high,
    )


class _Program(NamedTuple):
    """The values `(x, h_1, .., h_l, d_1, .., d_l)` that the network can take over a box."""

    lower: np.ndarray
    upper: np.ndarray
    binary: np.ndarray
    rows: np.ndarray
    row_limits: np.ndarray
    inputs: slice

    @classmethod
    def of(
        cls, layers: Sequence[Affine], intervals: Sequence[Interval], low: Any, high: Any
    ) -> _Program:
        """Write down the layers before the unit."""
        widths = [layer.bias.size for layer in layers]
        variables = low.size + 2 * sum(widths)
        lower, upper = np.zeros(variables), np.full(variables, np.inf)
        binary = np.zeros(variables)
        lower[: low.size], upper[: low.size] = low, high
        rows, limits = [np.zeros((0, variables))], [np.zeros(0)]
        before, switch = slice(0, low.size), low.size + sum(widths)
        for (kernel, bias), (least, most), width in zip(layers, intervals, widths, strict=True):
            here, gates = slice(before.stop, before.stop + width), slice(switch, switch + width)
            one = np.eye(width)
            above, below, gated = (np.zeros((width, variables)) for _ in range(3))
            above[:, before], above[:, here] = kernel.T, -one  # a - h <= 0
            below[:, before], below[:, here] = -kernel.T, one  # h - a - l d <= -l
            below[:, gates] = np.diag(-least)
            gated[:, here], gated[:, gates] = one, np.diag(-most)  # h - u d <= 0
            rows += [above, below, gated]
            limits += [-bias, bias - least, np.zeros(width)]
            upper[here] = relu(most)
            lower[gates], upper[gates] = least >= 0, most > 0
            binary[gates] = (least < 0) & (most > 0)
            before, switch = here, gates.stop
        return cls(lower, upper, binary, np.concatenate(rows), np.concatenate(limits), before)

    def minimum(self, objective: np.ndarray, seconds: float) -> tuple[float, bool]:
        """Bound the least value of a linear objective from below; say whether it is exact."""
        found = milp(
            objective,
            integrality=self.binary,
            bounds=Bounds(self.lower, self.upper),
            constraints=LinearConstraint(self.rows, ub=self.row_limits),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        dual = found.get("mip_dual_bound") if self.binary.any() else found.fun
        bound = -np.inf if dual is None or not found.status <= 1 else float(dual)
        return bound, found.status == 0
