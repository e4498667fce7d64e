"""Solvers that run in epochs."""
