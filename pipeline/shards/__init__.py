"""The shard stages: row shards (one per rank) and grid shards (blocks of a permuted matrix)."""
