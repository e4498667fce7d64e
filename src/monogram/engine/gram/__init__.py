"""The Gram matrix S = Xᵀ·diag(w)·X, user weights, and products with the sparse data."""
