/* vyre.h: bound launches of vyre-py, for programs in C, C++ and whatever calls C.
 *
 * A launch that was bound in Python is, for other compilers, one pointer: `launch.c_address` is the address of a vyre_launch_t. It says how to run
 * the launch and what it consists of. There is no library to link: the code that runs it is in the process already.
 *
 *     int status = vyre_launch(launch, NULL);
 *
 * The descriptor lives as long as the Python object that gave it, and follows what `launch.set` and `launch.on` change. See drivers/C_ABI.md for the
 * whole contract. C99 and C++98 with the integers of <stdint.h>.
 */

#ifndef VYRE_H
#define VYRE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this file. A descriptor of another version has another shape: look at `abi_version` before anything else. Within a version,
 * fields are only ever added at the end; `size_bytes` tells how many there are. */
#define VYRE_ABI_VERSION 1

/* What running gives: 0, or why it did not run. Ours are negative; one that is positive is the device library's own status (a CUresult). */
#ifndef VYRE_OK
#define VYRE_OK 0
#define VYRE_ERROR_LOST (-1)      /* the device was closed or lost, or, on CUDA, this is a child forked from the process that opened it */
#define VYRE_ERROR_FREED (-2)     /* a buffer that the launch uses was freed */
#define VYRE_ERROR_MEMORY (-3)    /* there is no memory for the scratch space of the kernel */
#define VYRE_ERROR_BUSY (-4)      /* a graph is being captured on the device, or the launch is being changed: try again later */
#define VYRE_ERROR_STREAM (-5)    /* a stream was given, and the device has none */
#endif

/* What runs the kernel. */
#define VYRE_DEVICE_CPU 1u
#define VYRE_DEVICE_CUDA 2u

/* What a parameter is: the address of a buffer, 8 bytes, or a value that lies in the argument block itself. */
#define VYRE_PARAMETER_BUFFER 1u
#define VYRE_PARAMETER_VALUE 2u

/* Of a buffer: what the kernel does with it. Bits. */
#define VYRE_READS 1u
#define VYRE_WRITES 2u

/* One parameter, as it lies in the argument block. A value takes whole words of 4 bytes, in the machine's byte order; what is narrower (bool, i8, u8,
 * f8e4m3, f8e5m2, i16, u16, f16, bf16) lies in the first bytes, and the others are zero. A vector may have one of these for each component: `part_bytes` says at
 * which byte of the vector it begins. */
typedef struct vyre_parameter {
    const char *name;      /* as in the Program: UTF-8, any characters but NUL */
    const char *type;      /* "f32", "u64", "bool", ...: of the value, or of an element of the buffer */
    uint32_t kind;         /* VYRE_PARAMETER_* */
    uint32_t access;       /* VYRE_READS | VYRE_WRITES for a buffer, 0 for a value */
    uint32_t offset_bytes; /* from the beginning of the argument block */
    uint32_t size_bytes;   /* in the argument block */
    uint32_t part_bytes;
    uint32_t reserved;     /* 0 */
} vyre_parameter_t;

/* A bound launch. All of it belongs to vyre-py and may only be read, except for the bytes that `arguments` points to: who writes parameters there, at
 * their offsets, launches with those. A buffer's address may be replaced by that of other memory which has the same shape, is on the same device, is
 * aligned to 16 bytes, and stays until the kernel is done: nothing checks it. */
typedef struct vyre_launch_descriptor {
    uint32_t abi_version; /* VYRE_ABI_VERSION */
    uint32_t size_bytes;  /* sizeof(vyre_launch_t) */
    int (*run)(const struct vyre_launch_descriptor *launch, void *stream);
    uint32_t device;       /* VYRE_DEVICE_* */
    uint32_t ordinal;      /* which device of its kind */
    uint32_t grid[3];      /* workgroups along x, y, z; one that is 0 means that there is nothing to run */
    uint32_t workgroup[3]; /* invocations of a workgroup along x, y, z */
    const char *name;      /* the Program's, UTF-8 */
    void *arguments;       /* the argument block; launch.set may put another in its place */
    uint64_t arguments_bytes;
    const vyre_parameter_t *parameters;
    uint64_t parameter_count;
    void *function;           /* the kernel: on CUDA a CUfunction, on the CPU a vyre_kernel_t; NULL where there is nothing to run */
    uint64_t workgroup_bytes; /* CUDA: the dynamic shared memory of a launch */
    uint64_t scratch_bytes;   /* CPU: the memory that a vyre_kernel_t needs while it runs, aligned to 64 bytes */
    void *context;            /* CUDA: the CUcontext; NULL elsewhere */
    void *stream;             /* CUDA: the CUstream that NULL stands for; NULL elsewhere */
    void *state;              /* what `run` looks at */
} vyre_launch_t;

/* A kernel on the CPU: runs the workgroups first to end - 1, numbered with x fastest, of a grid of x * y * z. Calls for different workgroups may run at
 * once in several threads, each with scratch memory of its own. */
typedef void (*vyre_kernel_t)(const void *arguments, void *scratch, int64_t first, int64_t end, uint32_t x, uint32_t y, uint32_t z);

/* Runs a launch. On the CPU it has run to its end when this returns, in the calling thread, and `stream` is NULL. On CUDA it is enqueued on `stream` (a
 * CUstream), or where that is NULL on the launch's own stream. Python is not touched, and need not be held. */
static inline int vyre_launch(const vyre_launch_t *launch, void *stream)
{
    return launch->run(launch, stream);
}

#ifdef __cplusplus
}
#endif

#endif
