"""Prioritized replay of overlapping sequences, in memory, in mapped files or on shards.

Terms of this package:

- stream: the time steps of one session's environments, in order, without gaps. A `stream_id`
  names it.
- chunk (`SequenceChunk`): the newest T steps of a stream's E environments, as they are inserted.
  `chunk_index` counts the chunks of a stream: 0, 1, 2, ...
- sequence: the steps that one training sample needs: burn-in, T trained steps, lookahead, and the
  frames of the first frame stack. Each chunk ends E sequences, one an environment.
- predecessors: the P chunks before its own whose frames a sequence uses. A frame is stored once,
  with the chunk that brought it.
- item: the place of one sequence in the ring, 0 .. capacity-1.
- key: the lasting number of one stored sequence: 0, 1, 2, ... in the order of insertion. Key k is
  stored in item k mod capacity, until key k + capacity replaces it.
- sampleable: the sequence and its P predecessors are stored.
- invalidated: no longer sampleable, because a predecessor was evicted.
- priority: how much a sequence is preferred. Its scaled priority is priority^α, where α is the
  priority exponent; `total_priority` is the sum of the scaled priorities that can be sampled.
- shard: a replay process that holds a part of the sequences.
- incarnation: one start of a shard, between two restarts. It says which sequences keys name.
"""
