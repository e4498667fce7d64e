"""Eigenpairs, and students of low rank."""
