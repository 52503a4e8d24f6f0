"""What a partition costs: balance, and the rows that its parts exchange, counted on the real matrix."""
