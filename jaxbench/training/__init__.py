"""The engine: runs in, trained runs out."""
