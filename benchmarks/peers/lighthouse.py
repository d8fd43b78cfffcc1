"""torchft's lighthouse, as its program torchft_lighthouse starts it, which wheels that are unpacked do not bring."""

from torchft._torchft import lighthouse_main

lighthouse_main()
