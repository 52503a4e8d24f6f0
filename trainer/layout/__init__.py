"""How a dense (n, dim) matrix is spread over the ranks, and how it moves between layouts."""
