"""The memory of a GPU, from its driver."""

import ctypes

_DRIVER = "libcuda.so.1"


def gpu_memory_bytes() -> int:
    """Return the memory of the first GPU of this process; 0 if no driver says it."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    device, size = ctypes.c_int(), ctypes.c_size_t()
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    )
    return 0 if failed else size.value
