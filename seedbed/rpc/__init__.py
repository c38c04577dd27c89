"""gRPC for the three protocols: channels, servers, streams, TLS, and the codec of every step."""
