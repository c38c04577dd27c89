"""gRPC for the three protocols: channels, servers, streams, TLS, and the codec of every step."""

from seedbed.rpc.polling import import_grpc

# Before any module of this package, or after it, imports gRPC itself.
import_grpc()
