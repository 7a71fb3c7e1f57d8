"""What a model is worth on labelled rows, and what its index has learned."""
