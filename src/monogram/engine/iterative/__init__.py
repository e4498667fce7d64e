"""Iterative solvers that run in epochs: weighted matrix factorisation, RG², SLIM."""
