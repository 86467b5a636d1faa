"""Interventions: one file an idea, its pure functions first."""
