"""MPI ranks that read their shards and train."""
