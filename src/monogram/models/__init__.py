"""Models: parameters, formulas, fits, updates and files of all recommenders in the package."""
