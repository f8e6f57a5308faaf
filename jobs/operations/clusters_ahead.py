"""Loaded by the process from which those of clusters are forked: what a night needs, every compiled loop included, once
instead of once a process."""

import signal
from contextlib import suppress
from importlib import import_module

from jobs import PACKAGE
from jobs.spark.gc_freeze import loaded_for_good

# whoever presses Ctrl-C meanwhile reads a line of the command, and no traceback of this process
signal.signal(signal.SIGINT, signal.SIG_DFL)

# only a head start: a process that cannot load fails its first night, and says why
with loaded_for_good(), suppress(Exception):
    import_module(".operations.cluster_night", PACKAGE)
    import_module(".operations.compile_kernels", PACKAGE).compile_kernels()
