"""Evaluation: metrics, ranking on a split, bootstrap intervals, popularity shift."""
