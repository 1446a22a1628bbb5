"""Code of NVIDIA GPUs for C: machine code and PTX as arrays of bytes, loaded and launched through the CUDA driver's own interface."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from vyre_py.export.arguments import Arguments, Limits
from vyre_py.export.names import quoted
from vyre_py.ir.language.dims import SIZE_LIMIT
from vyre_py.lowering.artifact.parts import Image, Step

__all__ = ["LIMITS", "example", "functions", "source"]

LIMITS: Final = Limits((2**31 - 1, 65535, 65535), SIZE_LIMIT - 1)  # every GPU's from sm_70 on
# More than this a kernel may have only when it is asked for.
_STATIC_WORKGROUP_BYTES: Final = 48 << 10
_A_LINE: Final = 24
_DEVICE: Final = """\
    int each, count = 0;
    CUdevice device;
"""
# As many workgroups as run at once, or fewer if the grid has no more, along x.
_WALKED: Final = """\
    plan.groups[0] *= plan.groups[1] * plan.groups[2];
    plan.groups[1] = plan.groups[2] = 1;
    if (plan.groups[0] > module->resident[plan.entry])
        plan.groups[0] = module->resident[plan.entry];
"""


def functions(name: str, step: Step) -> str:
    """What the source defines."""
    resident = f"    uint64_t resident[{len(step.entries)}]; /* how many workgroups of each run at once */\n" if step.persistent else ""
    return f"""\
/* The code, loaded into a context. */
typedef struct {name}_module {{
    CUcontext context;
    CUmodule module;
    CUfunction kernels[{len(step.entries)}];
{resident}}} {name}_module_t;

/* Loads the code into a context; into the calling thread's current one where that is NULL. */
int {name}_load({name}_module_t *module, CUcontext context);

/* Enqueues the kernel on a stream of that context, and does not wait; whatever context is current in the calling thread, it stays so. Any number of
 * threads may be in here at once. */
int {name}_launch(const {name}_module_t *module, const {name}_arguments_t *arguments, CUstream stream);

/* Unloads the code. No kernel of it may run any more. */
int {name}_unload({name}_module_t *module);"""


def example(arguments: Arguments) -> list[str]:
    """Its use."""
    name = arguments.name
    return [
        f"{name}_module_t module;", f"int status = {name}_load(&module, NULL);", *arguments.example(),
        f"status = {name}_launch(&module, &arguments, stream);", "", f"cc -std=c99 -O2 main.c {name}.c -lcuda",
    ]  # fmt: skip


def _bytes(name: str, code: bytes) -> Iterator[str]:
    yield f"static const union {{\n    unsigned char bytes[{len(code)}];\n    uint64_t aligned;\n}} {name} = {{{{"
    for at in range(0, len(code), _A_LINE):
        yield "    " + ", ".join(map(str, code[at : at + _A_LINE])) + ","
    yield "}};"


def _image(number: int, image: Image) -> str:
    return "\n".join([f"/* {image.format} */", *_bytes(f"image_{number}", image.code + b"\0")])


def source(arguments: Arguments, step: Step) -> str:
    """The C source."""
    name, images = arguments.name, step.images
    code = "\n\n".join([_image(number, image) for number, image in enumerate(images)])
    table = ", ".join([f"image_{number}.bytes" for number in range(len(images))])
    level = min(entry.details.get("assembler_level", 4) for entry in step.entries)
    symbols = ", ".join([quoted(entry.symbol) for entry in step.entries])
    (x, y, z), walked = step.workgroup, _WALKED if step.persistent else ""
    return f"""\
#include "{name}.h"

#include <string.h>

/* Best first. */
{code}

{arguments.plan()}

static int {name}_find({name}_module_t *module)
{{
    static const unsigned char *const images[] = {{{table}}};
    static const char *const symbols[] = {{{symbols}}};
    CUjit_option options[1] = {{CU_JIT_OPTIMIZATION_LEVEL}};
    void *values[1] = {{(void *)(uintptr_t){level}}};
    CUresult status = CUDA_ERROR_NO_BINARY_FOR_GPU;
    unsigned k;
{_DEVICE if step.persistent else ""}    for (k = 0; k < {len(images)} && status == CUDA_ERROR_NO_BINARY_FOR_GPU; k++)
        status = cuModuleLoadDataEx(&module->module, images[k], 1, options, values);
    if (status == CUDA_ERROR_NO_BINARY_FOR_GPU)
        return VYRE_ERROR_CODE;
    if (status != CUDA_SUCCESS)
        return (int)status;
    for (k = 0; k < {len(step.entries)} && status == CUDA_SUCCESS; k++) {{
        status = cuModuleGetFunction(&module->kernels[k], module->module, symbols[k]);
{_allowed(step.workgroup_bytes)}{_resident(step)}    }}
    if (status != CUDA_SUCCESS)
        cuModuleUnload(module->module);
    return (int)status;
}}

int {name}_load({name}_module_t *module, CUcontext context)
{{
    CUresult status;
    int found;
    memset(module, 0, sizeof *module);
    if (context == NULL && (status = cuCtxGetCurrent(&context)) != CUDA_SUCCESS)
        return (int)status;
    if (context == NULL)
        return (int)CUDA_ERROR_INVALID_CONTEXT;
    if ((status = cuCtxPushCurrent(context)) != CUDA_SUCCESS)
        return (int)status;
    module->context = context;
    found = {name}_find(module);
    status = cuCtxPopCurrent(&context);
    return found != VYRE_OK ? found : (int)status;
}}

int {name}_launch(const {name}_module_t *module, const {name}_arguments_t *arguments, CUstream stream)
{{
    {name}_plan_t plan;
    CUcontext popped;
    CUresult status, last;
    int planned = {name}_plan(arguments, &plan);
    size_t size = {arguments.step.layout.size_bytes};
    void *extra[5];
    if (planned != VYRE_OK)
        return planned;
    if (plan.groups[0] == 0 || plan.groups[1] == 0 || plan.groups[2] == 0)
        return VYRE_OK;
    extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    extra[1] = plan.block.bytes;
    extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    extra[3] = &size;
    extra[4] = CU_LAUNCH_PARAM_END;
    if ((status = cuCtxPushCurrent(module->context)) != CUDA_SUCCESS)
        return (int)status;
{walked}    status = cuLaunchKernel(module->kernels[plan.entry], (unsigned)plan.groups[0], (unsigned)plan.groups[1], (unsigned)plan.groups[2], {x}, {y}, {z},
                            {step.workgroup_bytes}, stream, NULL, extra);
    last = cuCtxPopCurrent(&popped);
    return (int)(status != CUDA_SUCCESS ? status : last);
}}

int {name}_unload({name}_module_t *module)
{{
    CUcontext popped;
    CUresult status = cuCtxPushCurrent(module->context), last;
    if (status != CUDA_SUCCESS)
        return (int)status;
    status = cuModuleUnload(module->module);
    last = cuCtxPopCurrent(&popped);
    return (int)(status != CUDA_SUCCESS ? status : last);
}}
"""


def _allowed(workgroup_bytes: int) -> str:
    """What lets a kernel have more workgroup memory than all may have."""
    if workgroup_bytes <= _STATIC_WORKGROUP_BYTES:
        return ""
    attribute = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    return f"""\
        if (status == CUDA_SUCCESS)
            status = cuFuncSetAttribute(module->kernels[k], {attribute}, {workgroup_bytes});
"""


def _resident(step: Step) -> str:
    """What asks how many workgroups of a kernel that walks through the grid run at once."""
    if not step.persistent:
        return ""
    return f"""\
        if (status == CUDA_SUCCESS)
            status = cuCtxGetDevice(&device);
        if (status == CUDA_SUCCESS)
            status = cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
        if (status == CUDA_SUCCESS)
            status = cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, module->kernels[k], {prod(step.workgroup)}, {step.workgroup_bytes});
        if (status == CUDA_SUCCESS && each < 1)
            status = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        module->resident[k] = status == CUDA_SUCCESS ? (uint64_t)each * (uint64_t)count : 0;
"""
