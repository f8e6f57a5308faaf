"""Preloaded by the process from which cluster processes are forked.

It loads what a night needs, including all compiled loops, once instead of once per process.
"""

import signal
from contextlib import suppress
from importlib import import_module

from jobs import PACKAGE

# on Ctrl-C the command prints a line, and this process no traceback
signal.signal(signal.SIGINT, signal.SIG_DFL)

# only an optimization: if loading fails, the first night of each process fails too, and reports why
with suppress(Exception):
    import_module(".operations.cluster_night", PACKAGE)
    import_module(".operations.compile_kernels", PACKAGE).compile_kernels()
