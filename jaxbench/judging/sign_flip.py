"""Sign flips: the exact paired test of "the difference is as likely to be -d as d"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from jaxbench.judging.arguments import check_at_least, finite_vector, one_of

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike

Alternative = Literal["two-sided", "less", "greater"]

EXACT_UP_TO = 20
"""The largest number of pairs whose sign flips are all enumerated (half a million of them)."""

RESAMPLES = 99_999
"""Random sign flips beyond that; with the observed one they are 100,000."""

RELATIVE_TOLERANCE = 1e-12
"""Two sums that differ by less than this share of the sum of |d| are a tie."""


class SignFlipTest(NamedTuple):
    """A sign-flip test.

    Attributes:
        p_value: the share of sign flips at least as extreme as the observed differences.
        attainable_p: the smallest p-value that this many non-zero differences can give.
        exact: whether all flips were enumerated, rather than drawn.
        alternative: what the p-value is against.
    """

    p_value: float
    attainable_p: float
    exact: bool
    alternative: Alternative


class Flips(NamedTuple):
    """Sums of differences under sign flips; the first flip is the observed one, all signs +1.

    Attributes:
        sums: the sum of s_i d_i for each flip s.
        signs: the sum of s_i for each flip s.
    """

    sums: Float[np.ndarray, " flips"]
    signs: Float[np.ndarray, " flips"]


def sign_flips(
    differences: Float[np.ndarray, " pairs"], *, resamples: int = RESAMPLES, seed: int = 0
) -> Flips:
    """Flip the signs of differences in all ways up to `EXACT_UP_TO` pairs, else at random.

    Since a flip and its opposite mirror each other, enumeration keeps the first sign at +1 and
    gives 2^(n-1) flips.  Random flips do not depend on the order of the pairs, nor on which arm is
    called the idea: they act on the |d| in ascending order.
    """
    ordered = differences[np.lexsort((differences, np.abs(differences)))]
    if ordered.size <= EXACT_UP_TO:
        sums, signs = ordered[:1], np.ones(1)
        for difference in ordered[1:]:
            sums = np.concatenate([sums + difference, sums - difference])
            signs = np.concatenate([signs + 1.0, signs - 1.0])
        return Flips(sums, signs)
    orientation = np.where(ordered < 0.0, -1.0, 1.0)
    weights = np.stack([np.abs(ordered), orientation], axis=1)
    generator = np.random.default_rng(seed)
    rows = max(1, 2**21 // ordered.size)
    drawn = [weights.T @ orientation[:, None]]
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), ordered.size)
        flips = generator.integers(0, 2, size=shape, dtype=np.int8) * np.int8(2) - np.int8(1)
        drawn.append((flips @ weights).T)
    return Flips(*np.concatenate(drawn, axis=1))


def attainable_p(
    pairs: int,
    *,
    zeros: int = 0,
    alternative: Alternative = "two-sided",
    resamples: int = RESAMPLES,
) -> float:
    """Give the smallest p-value that a number of pairs can reach.

    2^(1-n) two-sided and 2^-n one-sided, for n pairs that differ; beyond `EXACT_UP_TO` pairs, where
    flips are drawn, no less than 1 / (resamples + 1).

    Args:
        pairs: how many there are.
        zeros: how many of them do not differ.
        alternative: `two-sided`, or a side.
        resamples: random flips beyond `EXACT_UP_TO` pairs.
    """
    one_of(alternative, get_args(Alternative), "alternative")
    smallest = min(1.0, 2.0 ** (float(alternative == "two-sided") - (pairs - zeros)))
    return smallest if pairs <= EXACT_UP_TO else max(smallest, 1.0 / (resamples + 1))


def sign_flip_test(
    differences: ArrayLike,
    *,
    alternative: Alternative = "two-sided",
    rounding: float = 0.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> SignFlipTest:
    """Test whether paired differences are symmetric about zero, by flipping their signs.

    p = #{s in {-1, 1}^n : |s.d| >= |1.d| - eps} / 2^n up to 20 pairs, by enumeration; beyond,
    (k + 1) / (resamples + 1) from random flips.  eps = 1e-12 sum |d| + `rounding` makes sums that
    differ by rounding a tie, so that p is the same for swapped arms and for scaled scores.  Zero
    differences stay in: they flip to themselves, and all zero gives p = 1.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        alternative: `two-sided`; `less`, the mean is below zero; or `greater`, above.
        rounding: absolute error of the sum of the differences, from rounding of the scores.
        resamples: random flips beyond 20 pairs.
        seed: of the random flips.

    Raises:
        JaxbenchError: fewer than two differences, or one that is not finite (a naive enumeration
            would call those significant).

    Reference: Fisher, The Design of Experiments (1935), section 21; the + 1: Phipson & Smyth
        (2010), Permutation p-values should never be zero.
    """
    one_of(alternative, get_args(Alternative), "alternative")
    check_at_least(resamples, 1, "resamples")
    checked = finite_vector(differences)
    sums = sign_flips(checked, resamples=resamples, seed=seed).sums
    exact = checked.size <= EXACT_UP_TO
    tolerance = RELATIVE_TOLERANCE * float(np.abs(checked).sum()) + rounding
    observed = math.fsum(checked)
    if alternative == "two-sided":
        p_value = float(np.mean(np.abs(sums) >= abs(observed) - tolerance))
    else:
        side = 1.0 if alternative == "greater" else -1.0
        extreme = side * sums >= side * observed - tolerance
        # Enumeration holds one flip of each opposite pair: count the other one too.
        mirrored = -side * sums >= side * observed - tolerance
        p_value = float((np.mean(extreme) + np.mean(mirrored)) / 2 if exact else np.mean(extreme))
    reachable = attainable_p(
        checked.size,
        zeros=int(np.count_nonzero(checked == 0.0)),
        alternative=alternative,
        resamples=resamples,
    )
    return SignFlipTest(p_value, reachable, exact, alternative)


def legacy_signflip_p(differences: ArrayLike) -> float:
    """Give the Monte-Carlo sign-flip p-value of the reference reports.

    20,000 flips from `default_rng(0).choice([-1, 1])`, p = mean(|mean(s d)| >= |mean(d)| - 1e-12),
    without the + 1, and with a tolerance that does not scale: reported beside the exact p-value
    and decides nothing.

    Raises:
        JaxbenchError: fewer than two differences, or one that is not finite.
    """
    checked = finite_vector(differences)
    generator, flips = np.random.default_rng(0), 20_000
    rows = max(1, 2**21 // checked.size)
    extreme = 0
    for start in range(0, flips, rows):
        signs = generator.choice([-1, 1], size=(min(rows, flips - start), checked.size))
        flipped = np.abs((signs * checked).mean(axis=1))
        extreme += int(np.count_nonzero(flipped >= abs(checked.mean()) - 1e-12))
    return extreme / flips
