"""Random rectified networks in float64, and units built to be on, off or crossing."""

import itertools

import numpy as np
from hypothesis import strategies as st

from jaxbench.interventions.relu_network import Affine, Replacement, preacts

SEEDS = st.integers(0, 2**31)
WIDTHS = st.lists(st.integers(1, 6), min_size=3, max_size=5)


def network(rng, widths):
    return [
        Affine(rng.normal(size=pair), rng.normal(size=pair[1]))
        for pair in itertools.pairwise(widths)
    ]


def points(rng, layers, count=40):
    return rng.uniform(-1, 1, size=(count, layers[0].kernel.shape[0]))


def any_replacements(rng, layers):
    """Kept units, zeros, affine ones and fitted ones, at random."""
    chosen = []
    for _, bias in layers[:-1]:
        what = rng.integers(0, 4, size=bias.size)
        slope = np.where(what == 2, 1.0, np.where(what == 3, rng.uniform(size=bias.size), 0.0))
        intercept = np.where(what == 3, rng.normal(size=bias.size), 0.0)
        chosen.append(Replacement((what == 0).astype(float), slope, intercept))
    return chosen


def built(rng, widths, share_on=0.4, share_off=0.3):
    """A network whose units are always on (b = 10), always off (b = -10) or crossing on the box."""
    layers, kinds = network(rng, widths), []
    for place, (kernel, bias) in enumerate(layers[:-1]):
        kind = rng.choice([1, -1, 0], size=bias.size, p=[share_on, share_off, 0.3])
        size = np.ones(widths[0])
        if place:  # inputs of later layers are as large as the biases made them
            size = np.abs(preacts(layers, np.eye(widths[0]))[place - 1]).max(0) * 20 + 20
        scale = 9 / (size @ np.abs(kernel) + 1e-9)
        kernel = np.where(kind != 0, kernel * np.minimum(scale, 1), kernel)
        layers[place] = Affine(kernel, np.where(kind == 0, bias, 10.0 * kind))
        kinds.append(kind)
    return layers, kinds


def one_sided(kinds):
    return [
        Replacement((kind == 0).astype(float), (kind == 1).astype(float), np.zeros(kind.size))
        for kind in kinds
    ]
