"""Models: one file a network; the only place that imports flax."""
