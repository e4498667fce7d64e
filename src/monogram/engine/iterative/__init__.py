"""Iterative solvers: weighted matrix factorisation, RG², SLIM."""
