"""CRC-32C in a compiled loop, with the processor's own instruction: for many small batches.

A call from Python into a library costs as much as the checksum of two kilobytes. Where the processor has no such
instruction, `HAS_INSTRUCTION` is false and `crc32c` must not be called.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.cgutils import get_or_insert_function
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from coordinator_core.bytes.log.chunk import U8
from coordinator_core.bytes.log.kernels import compiled, le64

HAS_INSTRUCTION: Final = not config.DISABLE_JIT and "+sse4.2" in cpu_target.target_context.codegen().magic_tuple()[2]
"""For the target that numba compiles for: this machine, unless its settings name another."""

_ALL_ONES: Final = np.uint64(0xFFFFFFFF)


@intrinsic
def _add_word(_typing: Any, crc: Any, word: Any) -> Any:
    """Add eight bytes to the checksum, in little-endian order."""
    return types.uint64(types.uint64, types.uint64), _calls("llvm.x86.sse42.crc32.64.64", 64, 64)


@intrinsic
def _add_byte(_typing: Any, crc: Any, byte: Any) -> Any:
    return types.uint32(types.uint32, types.uint8), _calls("llvm.x86.sse42.crc32.32.8", 32, 8)


def _calls(name: str, crc_bits: int, data_bits: int) -> Any:
    crc_type = ir.IntType(crc_bits)
    function_type = ir.FunctionType(crc_type, [crc_type, ir.IntType(data_bits)])

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.call(get_or_insert_function(builder.module, function_type, name), arguments)

    return generate


@compiled
def crc32c(data: U8, start: int, end: int) -> int:
    """The checksum of `data[start:end]`. The caller has checked the bounds."""
    at, stop = np.uint64(start), np.uint64(end)
    word_crc = _ALL_ONES
    while stop - at >= np.uint64(8):
        word_crc = _add_word(word_crc, le64(data, at))
        at += np.uint64(8)
    crc = np.uint32(word_crc)
    while at < stop:
        crc = _add_byte(crc, data[at])
        at += np.uint64(1)
    return int(np.uint64(crc) ^ _ALL_ONES)
