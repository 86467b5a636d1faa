"""Strict JSON: results as plain values, with None for what is not finite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def strict_json(value: Any) -> Any:
    """Turn results into values that `json.dumps(..., allow_nan=False)` accepts.

    Args:
        value: dataclasses, named tuples, mappings, sequences, numpy arrays and scalars, nested.

    Returns:
        The same as dicts, lists, strings, booleans and numbers; NaN and infinities become None.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: strict_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return strict_json(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return strict_json(np.asarray(value).tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [strict_json(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
