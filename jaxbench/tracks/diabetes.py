"""`diabetes`: how diabetes progressed within a year, from ten measurements of 442 patients.

The data of Efron, Hastie, Johnstone and Tibshirani (2004, Least angle regression) that come with
scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from jaxbench.base import Track
from jaxbench.tracks import extras
from jaxbench.tracks.tables import table_track


def build(
    *,
    train_size: Annotated[int, Ge(2)] = 262,
    validation_size: Annotated[int, Ge(1)] = 90,
    test_size: Annotated[int, Ge(1)] = 90,
) -> Track:
    """Build the diabetes data: predict a patient's progression from ten measurements.

    Args:
        train_size: training samples; there are 442 in all.
        validation_size: validation samples.
        test_size: test samples.
    """
    options = dict(locals())
    datasets = extras.load("sklearn.datasets", "scikit-learn", "diabetes")
    inputs, progression = datasets.load_diabetes(return_X_y=True, scaled=False)
    return table_track(
        inputs,
        progression[:, None],
        (train_size, validation_size, test_size),
        name="diabetes",
        summary="how diabetes progressed within a year, from ten measurements of 442 patients",
        options=options,
        where="the data set",
    )
