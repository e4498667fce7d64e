"""Shipped for everyone who writes a model: the contract it must pass, and tiny worlds with known answers."""

from monogram.testing.contract import check_recommender
from monogram.testing.worlds import two_tastes

__all__ = ["check_recommender", "two_tastes"]
