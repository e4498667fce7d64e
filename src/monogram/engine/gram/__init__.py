"""The Gram matrix, its weights, and products with the sparse data."""
