"""Process of a replay shard: one sequence buffer behind gRPC."""
