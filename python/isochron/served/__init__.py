"""Asynchronous training for any framework: parameters that are served by the workers themselves, each a share of them.

  alarm     the first failure, which ends everybody's waiting
  reach     the address at which the other workers reach this one
  wire      frames of words and numbers over TCP
  network   how workers reach each other: sockets, or what a framework brings
  layout    parameters laid end to end and cut into equal shares
  messages  what workers, shards and the desk say to each other
  shard     one worker's share: takes updates in, hands values out
  desk      says who computes which samples next (the native module's Dispatcher decides)
  server    threads that answer the other workers
  client    asks the desk and all shards
  course    a worker's way from order to order and from meeting to meeting

It imports NumPy and the native module, and no framework: a framework brings the arithmetic of an update (shard.Updater)
and a way to gather a few words from all workers when the job starts and at meetings.
"""
