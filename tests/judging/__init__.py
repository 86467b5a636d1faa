"""Tests of jaxbench.judging."""
