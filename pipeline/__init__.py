"""From raw files to artifacts: Dask stages that ingest, partition and shard."""
