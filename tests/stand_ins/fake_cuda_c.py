"""A stand-in for libcuda in C: the functions that exported code calls, which write down how they were called."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from compilers import compile_c

__all__ = ["CUDA_H", "FakeLibrary", "fake_library"]

# What exported code uses of the driver's interface, with the numbers and the shapes that it has there.
CUDA_H = """
#ifndef CUDA_H
#define CUDA_H
#include <stddef.h>
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_CONTEXT = 201, CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
               CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701, CUDA_ERROR_UNKNOWN = 999 } CUresult;
typedef enum { CU_JIT_OPTIMIZATION_LEVEL = 7 } CUjit_option;
typedef int CUdevice;
typedef enum { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16 } CUdevice_attribute;
typedef enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 } CUfunction_attribute;
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define cuCtxPushCurrent cuCtxPushCurrent_v2
#define cuCtxPopCurrent cuCtxPopCurrent_v2
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxPushCurrent(CUcontext context);
CUresult cuCtxPopCurrent(CUcontext *context);
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuModuleUnload(CUmodule module);
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int size, size_t shared);
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void **parameters, void **extra);
#endif
"""

_SOURCE = r"""
#include "cuda.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 16];
static size_t length;
static struct { char name[40]; int statuses[4]; int count, at; } failing;

#define SAY(...) (length += (size_t)snprintf(text + length, sizeof text - length, __VA_ARGS__))

const char *fake_log(void) { text[length] = 0; length = 0; return text; }

void fake_fail(const char *name, int first, int second, int count)
{
    strncpy(failing.name, name, sizeof failing.name - 1);
    failing.statuses[0] = first;
    failing.statuses[1] = second;
    failing.count = count;
    failing.at = 0;
}

static CUresult answer(const char *name)
{
    if (failing.at < failing.count && strcmp(name, failing.name) == 0)
        return (CUresult)failing.statuses[failing.at++];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) { SAY("cuCtxGetCurrent\n"); *context = (CUcontext)(uintptr_t)66; return answer("cuCtxGetCurrent"); }
CUresult cuCtxPushCurrent(CUcontext context) { SAY("cuCtxPushCurrent %d\n", (int)(uintptr_t)context); return answer("cuCtxPushCurrent"); }
CUresult cuCtxPopCurrent(CUcontext *context) { SAY("cuCtxPopCurrent\n"); *context = NULL; return answer("cuCtxPopCurrent"); }

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values)
{
    const unsigned char *code = image;
    if (count != 1 || options[0] != CU_JIT_OPTIMIZATION_LEVEL || (uintptr_t)values[0] > 4)
        return CUDA_ERROR_UNKNOWN;
    SAY("cuModuleLoadDataEx %s\n", code[0] == 0x7f ? "\\x7fELF" : strstr((const char *)code, ".version") ? ".version" : "?");
    *module = (CUmodule)(uintptr_t)9;
    return answer("cuModuleLoadDataEx");
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    SAY("cuModuleGetFunction %s\n", name);
    *function = (CUfunction)(uintptr_t)8;
    return answer("cuModuleGetFunction");
}

CUresult cuModuleUnload(CUmodule module) { SAY("cuModuleUnload %d\n", (int)(uintptr_t)module); return answer("cuModuleUnload"); }

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)attribute;
    SAY("cuFuncSetAttribute %d %d\n", (int)(uintptr_t)function, value);
    return answer("cuFuncSetAttribute");
}

CUresult cuCtxGetDevice(CUdevice *device) { SAY("cuCtxGetDevice\n"); *device = 3; return answer("cuCtxGetDevice"); }

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SAY("cuDeviceGetAttribute %d %d\n", (int)attribute, device);
    *value = 4;
    return answer("cuDeviceGetAttribute");
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int size, size_t shared)
{
    SAY("cuOccupancyMaxActiveBlocksPerMultiprocessor %d %d %d\n", (int)(uintptr_t)function, size, (int)shared);
    *blocks = size > 256 ? 0 : 2;
    return answer("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void **parameters, void **extra)
{
    const unsigned char *block = extra[1];
    size_t k, size = *(const size_t *)extra[3];
    if (parameters != NULL || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END)
        return CUDA_ERROR_UNKNOWN;
    SAY("cuLaunchKernel %d %u %u %u %u %u %u %u %d ", (int)(uintptr_t)function, gx, gy, gz, bx, by, bz, shared, (int)(uintptr_t)stream);
    for (k = 0; k < size; k++)
        SAY("%02x", block[k]);
    SAY("\n");
    return answer("cuLaunchKernel");
}
"""


@dataclass(frozen=True)
class FakeLibrary:
    """The folder with `cuda.h`, the linker's options, and the library itself."""

    include: Path
    options: tuple[str, ...]
    library: ctypes.CDLL

    def log(self) -> list[str]:
        """The calls since this was last asked."""
        found = self.library.fake_log
        found.restype = ctypes.c_char_p
        return found().decode().splitlines()

    def fail(self, name: str, *statuses: int) -> None:
        """Has the next calls of a function give these statuses."""
        first, second = (*statuses, 0)[:2]
        self.library.fake_fail(name.encode(), first, second, len(statuses))


def fake_library(folder: Path) -> FakeLibrary:
    """Compiles it."""
    (folder / "cuda.h").write_text(CUDA_H)
    (folder / "fake.c").write_text(_SOURCE)
    built = compile_c(folder / "libcuda.so", [folder / "fake.c"], f"-I{folder}", "-shared", "-fPIC")
    return FakeLibrary(folder, (f"-L{folder}", "-lcuda", f"-Wl,-rpath,{folder}"), ctypes.CDLL(str(built)))
