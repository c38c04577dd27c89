"""Sessions with actors: their streams, handshakes, steps and inference batches."""
