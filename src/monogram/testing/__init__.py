"""Tests for authors of models: the contract of a recommender, and small data sets with known answers."""

from monogram.testing.contract import check_recommender
from monogram.testing.worlds import two_tastes

__all__ = ["check_recommender", "two_tastes"]
