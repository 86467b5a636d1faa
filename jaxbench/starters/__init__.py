"""Starters: the files that `jaxbench new` copies, each one a working example."""
