"""Streams between processes of one machine: packets of a unix socket, and shared memory.

A stream is what gRPC's is, with the same messages in the same order, metadata, half-close and
status, so that servicers and clients are the same over both. Large contents are in shared memory,
which the first packet carries; everything else is in packets of `SOCK_SEQPACKET`. A packet costs a
tenth of a gRPC message, and the end of a process is seen at once, because the kernel closes its
sockets.
"""
