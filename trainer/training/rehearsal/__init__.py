"""What a training will need, before it runs: a rehearsal of some epochs on arrays without values."""
