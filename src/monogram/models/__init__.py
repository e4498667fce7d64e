"""Thin classes: parameters, fit, weights."""
