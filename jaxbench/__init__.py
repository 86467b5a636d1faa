"""Paired, tuned and judged comparisons of machine-learning ideas."""

__version__ = "0.1.0"
