"""Loggers: a judged study in an MLflow store or in TensorBoard's event files, if asked."""
