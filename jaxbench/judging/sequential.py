"""Sequential: a paired test that stays valid however often one looks, for more seeds on demand.

The bet: before the sign of a difference is seen, its size is known; stake a share of the wealth on
the sign.  Where differences are symmetric about zero, as the sign-flip test assumes too, no bet on
a fair coin gains on average, so that wealth of 1 / alpha is a proof at level alpha at any moment.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import check_at_least, check_fraction

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike

STRENGTHS = (0.5, 1.0, 2.0)
"""Bets are made at each of these strengths, with equal shares of the wealth."""

LARGEST_LOGARITHM = 700.0
"""Wealth is stated up to exp of this."""

SAME = 1e-9
"""Logarithms of the wealth this close differ by rounding."""

NOT_VALID = (
    "the p-value of a number of seeds fixed beforehand, the intervals and the equivalence test are "
    "not valid where seeds are added until a test decides"
)


class Wealth(NamedTuple):
    """Logarithms of the wealth after each difference, having started with 1.

    Attributes:
        greater: from bets on positive differences.
        less: from bets on negative ones.
        both: from half of the wealth in each.
    """

    greater: Float[np.ndarray, "*studies pairs"]
    less: Float[np.ndarray, "*studies pairs"]
    both: Float[np.ndarray, "*studies pairs"]


class SequentialState(NamedTuple):
    """What a sequential test says after the differences so far.

    Attributes:
        pairs: number of differences seen.
        e_value: the wealth now.
        p_anytime: 1 over the greatest wealth so far, at most 1: a p-value at any time.
        decided: whether it has ever been at most alpha.
        decided_at: after how many differences that was; None if undecided.
        sign: of the mean difference by the greater of both bets where the wealth was greatest, the
            place that `p_anytime` belongs to; 0 for a draw.
    """

    pairs: int
    e_value: float
    p_anytime: float
    decided: bool
    decided_at: int | None
    sign: int


@dataclasses.dataclass(frozen=True)
class Sequential:
    """How a comparison went whose seeds were added until it was decided.

    Attributes:
        max_pairs: how many pairs there would have been at most, fixed beforehand.
        e_values: the wealth after each pair.
        p_values: the anytime-valid p-value after each pair; it never rises.
        decided_at: after how many pairs it was at most alpha, before any correction; or None.
        sign: of the mean difference by the greater of both bets where the wealth was greatest, the
            place that `p_anytime` belongs to; 0 for a draw.
        not_valid: what must not be read as usual.
    """

    max_pairs: int
    e_values: tuple[float, ...]
    p_values: tuple[float, ...]
    decided_at: int | None
    sign: int
    not_valid: str = NOT_VALID

    @property
    def p_anytime(self) -> float:
        """The p-value that is valid whenever and whyever one stops."""
        return self.p_values[-1]


def sequential(differences: ArrayLike, *, alpha: float, max_pairs: int) -> Sequential:
    """Test differences that were added until the test decides, and give its whole trajectory.

    Args:
        differences: idea minus baseline, in the order in which their seeds ran; infinite where one
            run diverged.
        alpha: level of the whole sequence of looks.
        max_pairs: at how many pairs it would have stopped undecided.

    Raises:
        JaxbenchError: as `SequentialTest`, no pairs at all, or more than `max_pairs`.
    """
    test = SequentialTest(alpha)
    state = test.update(differences)
    if not 1 <= state.pairs <= max_pairs:
        raise JaxbenchError(
            f"a sequence of at most {max_pairs} pairs cannot have {state.pairs}; max_pairs is "
            f"fixed before the first look"
        )
    wealth, greatest = test.trajectory
    return Sequential(
        max_pairs=max_pairs,
        e_values=tuple(math.exp(min(each, LARGEST_LOGARITHM)) for each in wealth),
        p_values=tuple(math.exp(-max(each, 0.0)) for each in greatest),
        decided_at=state.decided_at,
        sign=state.sign,
    )


def sign_flip_wealth(differences: Float[np.ndarray, "*studies pairs"]) -> Wealth:
    """Bet on the sign of every difference in turn.

    At strength k the wealth is multiplied by 1 + s_i tanh(k u_i), with the sign s_i and the size
    u_i = |d_i| / sqrt(mean_{j <= i} d_j^2).  Given all sizes the signs are fair coins under the
    null hypothesis, so that the expected factor is exactly 1 and the wealth is a martingale; it
    exceeds 1 / alpha at any time with a chance of at most alpha (Ville).  No scale is assumed: u
    has none.  For normal differences of mean m and variance v the bet of greatest growth is
    tanh(m |d| / v), which is k = z sqrt(1 + z^2) with z = m / sqrt(v): the mixture over strengths
    comes close to it without knowing z.

    Args:
        differences: idea minus baseline, seeds along the last axis in the order in which they ran;
            infinite where one run diverged (the largest bet there is), never NaN.

    Reference: Ville (1939); de la Pena (1999), A general class of exponential inequalities for
        martingales and ratios (symmetric differences); Ramdas, Ruf, Larsson & Koolen (2020),
        Admissible anytime-valid sequential inference must rely on nonnegative martingales.
    """
    finite = np.isfinite(differences)
    sizes = np.where(finite, np.abs(differences), 0.0)
    root = np.hypot.accumulate(sizes, axis=-1)
    seen = np.arange(1.0, differences.shape[-1] + 1.0)
    relative = np.divide(sizes, root, out=np.zeros_like(sizes), where=root > 0.0)
    counted = np.sqrt(np.cumsum(finite, axis=-1))
    u = np.where(finite, relative * counted, np.sqrt(seen))
    signed = np.sign(differences) * u
    greater, less = (_mixture(side * signed) for side in (1.0, -1.0))
    return Wealth(greater, less, np.logaddexp(greater, less) - math.log(2.0))


def _mixture(
    signed: Float[np.ndarray, "*studies pairs"],
) -> Float[np.ndarray, "*studies pairs"]:
    """Give the logarithm of the mean wealth over strengths; log(1 + tanh x) = x - log cosh x."""
    bets = np.multiply.outer(np.array(STRENGTHS), signed)
    log_cosh = np.logaddexp(bets, -bets) - math.log(2.0)
    wealth = np.cumsum(bets - log_cosh, axis=-1)
    return np.logaddexp.reduce(wealth, axis=0) - math.log(len(STRENGTHS))


def attainable_p_anytime(pairs: int, *, zeros: int = 0) -> float:
    """Give the smallest anytime-valid p-value that a number of pairs can reach.

    Where all signs agree and bet j is the largest there is, u_j = sqrt(j): the wealth of both
    bets together, a sum over even numbers of factors tanh(k u_j), grows with each of them.

    Args:
        pairs: how many there are.
        zeros: how many of them do not differ; they cost least where they come first.

    Raises:
        JaxbenchError: a negative number, or more zeros than pairs.
    """
    check_at_least(zeros, 0, "zeros")
    check_at_least(pairs, zeros, "pairs")
    largest = np.where(np.arange(pairs) < zeros, 0.0, np.inf)
    return math.exp(-max(0.0, *sign_flip_wealth(largest).both)) if pairs else 1.0


def seeds_to_decide(hypotheses: int = 1, *, alpha: float = 0.05) -> int:
    """Give the fewest seeds with which the sequential test can decide.

    Args:
        hypotheses: m, the size of the family of comparisons; Holm takes m p <= alpha.
        alpha: level of the two-sided test.

    Raises:
        JaxbenchError: no hypothesis, an alpha outside (0, 1).
    """
    check_fraction(alpha, "alpha")
    check_at_least(hypotheses, 1, "hypotheses")
    pairs = 2
    while hypotheses * attainable_p_anytime(pairs) > alpha:
        pairs += 1
    return pairs


class SequentialTest:
    """A two-sided test of "the differences are symmetric about zero" that one may watch.

    The chance of ever deciding although they are is at most alpha, whenever one looks and whyever
    one stops.  The price is power: a test at a number of seeds fixed beforehand needs fewer.
    """

    def __init__(self, alpha: float = 0.05) -> None:
        """Begin with no differences.

        Args:
            alpha: level of the whole sequence of looks.

        Raises:
            JaxbenchError: an alpha outside (0, 1).
        """
        check_fraction(alpha, "alpha")
        self.alpha = alpha
        self._differences: Float[np.ndarray, " pairs"] = np.zeros(0)

    def update(self, differences: ArrayLike) -> SequentialState:
        """Take further differences, in the order in which their seeds ran, and say where it stands.

        Args:
            differences: idea minus baseline; infinite where one run diverged (see
                `PairedScores.differences`), in no unit in particular; may be empty.

        Raises:
            JaxbenchError: not a flat list of numbers, or NaN among them.
        """
        try:
            new = np.asarray(differences, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise JaxbenchError(f"differences must be numbers, one a seed; {error}.") from error
        if new.ndim != 1 or np.isnan(new).any():
            raise JaxbenchError(
                "differences must be a flat list of numbers, without NaN: a diverged run counts as "
                "an infinite difference, see PairedScores.differences."
            )
        self._differences = np.concatenate([self._differences, new])
        return self.state

    @property
    def trajectory(self) -> tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, " pairs"]]:
        """Logarithms of the wealth after each difference, and of the greatest until then."""
        wealth = sign_flip_wealth(self._differences).both
        return wealth, np.maximum.accumulate(wealth)

    @property
    def state(self) -> SequentialState:
        """What the differences so far say."""
        if not self._differences.size:
            return SequentialState(0, 1.0, 1.0, False, None, 0)
        wealth = sign_flip_wealth(self._differences)
        proofs = np.flatnonzero(wealth.both >= -math.log(self.alpha))
        decided_at = int(proofs[0]) + 1 if proofs.size else None
        greatest = float(wealth.both.max())
        place = np.flatnonzero(wealth.both >= greatest - SAME)[-1]
        return SequentialState(
            pairs=wealth.both.size,
            e_value=math.exp(min(float(wealth.both[-1]), LARGEST_LOGARITHM)),
            p_anytime=math.exp(min(0.0, -greatest)),
            decided=decided_at is not None,
            decided_at=decided_at,
            sign=int(np.sign(wealth.greater[place] - wealth.less[place])),
        )
