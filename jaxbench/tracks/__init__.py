"""Tracks: one file a task."""
