"""Asynchronous training for any framework: parameters that are served by the workers themselves, each a share of them.

The protocol is native (isochron/server: links, servers, clients, the session of a worker, recovery), and so is
everything that moves or waits. Here is what opens the connections, and what a framework brings:

  reach    the address at which the other workers reach this one
  sockets  authenticated connections between all workers
  job      what the frameworks' jobs have in common
  session  _core.AsyncSession for a framework, which supplies an Owner, and an Updater for every chunk

It imports NumPy and no framework.
"""
