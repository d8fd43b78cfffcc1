"""Asynchronous training for any framework: parameters that are served by the workers themselves, each a share of them.

  alarm         the first failure, which ends everybody's waiting
  reach         the address at which the other workers reach this one
  wire          frames of messages and numbers over TCP
  network       how workers reach each other: sockets, or what a framework brings
  shard         one worker's share: takes updates in, hands values out
  coordination  where the workers ask what to do next
  server        threads that answer the other workers
  client        asks the coordinator and all shards
  course        a worker's way from assignment to assignment and from barrier to barrier

What is decided, and what messages say, is the native module's (isochron/core/dispatch): Coordinator, ShardLedger,
ParameterLayout, and the messages with their bytes. This package moves them. It imports NumPy and no framework: a
framework brings the arithmetic of an update (shard.Updater) and a way to gather a few values from all workers when the
job starts and at barriers.
"""
