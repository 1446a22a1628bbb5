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

/* What a call of a function says of arguments that break a rule, the first one that they break. */
#ifndef VYRE_ERROR_NULL
#define VYRE_ERROR_NULL (-16)      /* a buffer that has elements has no address */
#define VYRE_ERROR_ALIGNMENT (-17) /* a buffer's address is not a multiple of the size of its elements */
#define VYRE_ERROR_OVERLAP (-18)   /* a buffer that is written shares bytes with another one */
#define VYRE_ERROR_SHAPE (-19)     /* an axis has not the size that the others ask for */
#define VYRE_ERROR_SIZE (-20)      /* a size is larger than the code takes, or negative where something is to run, divides by zero, or leaves 64 bits */
#define VYRE_ERROR_GRID (-21)      /* the grid is larger than the device takes, or its size cannot be computed */
#define VYRE_ERROR_CODE (-22)      /* no code here is for this GPU: exported C alone says so */
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

/* Of the arguments of a function: a dim, whose size may be given by name. The other kinds are those of a launch. */
#define VYRE_PARAMETER_DIM 3u

/* A kernel of a function: on the CPU a vyre_kernel_t, on CUDA a CUfunction. */
typedef struct vyre_callable_kernel {
    void *function;
    uint64_t scratch_bytes;   /* CPU: as of a launch */
    uint64_t workgroup_bytes; /* CUDA: as of a launch */
    uint64_t ordered;         /* CPU: not 0 where all workgroups run in one thread, in order */
} vyre_callable_kernel_t;

/* A pipeline as a function of arguments of any sizes: `pipeline.callable().c_address`. All of it belongs to vyre-py and may only be read. What its calls take:
 *
 *   addresses   `address_count` words: where each buffer begins, in order of declaration; of one without elements it may be NULL
 *   sizes       `size_count` words: the size of each axis of each buffer, in elements, one buffer after another; then one for each dim, -1 for one that is
 *               the size of an axis. So those of an argument of kind BUFFER begin at its `offset_bytes` (a number of words here), `part_bytes` of them,
 *               and that of a dim is at its `offset_bytes`
 *   params      `params_bytes` bytes: the params one after another, without gaps, each at its `offset_bytes`; a bool is one byte, 0 or 1
 *
 * Nothing of these is kept. Any number of threads may call at once. */
typedef struct vyre_callable_descriptor {
    uint32_t abi_version; /* VYRE_ABI_VERSION */
    uint32_t size_bytes;  /* sizeof(vyre_callable_t) */
    int (*call)(
        const struct vyre_callable_descriptor *callable, void *const *addresses, const int64_t *sizes, const void *params, void *stream);
    /* What a call does first, for those who run kernels themselves, in threads of their own: the number of the kernel, or a status. To `block` goes the
     * argument block, `block_bytes` of it, aligned to 8; to `grid` the workgroups along x, y, z as the Program counts them, then those to launch along
     * x, y, z, and the invocations that the Program asks for. Where one of the first three is 0 there is nothing to run. */
    int (*plan)(void *const *addresses, const int64_t *sizes, const void *params, void *block, int64_t grid[7]);
    uint32_t device;  /* VYRE_DEVICE_* */
    uint32_t ordinal; /* which device of its kind */
    const char *name; /* the Program's, UTF-8 */
    const vyre_parameter_t *arguments; /* buffers, params, dims: in order of declaration */
    uint64_t argument_count;
    uint64_t address_count;
    uint64_t size_count;
    uint64_t params_bytes;
    uint64_t block_bytes;
    const vyre_callable_kernel_t *kernels;
    uint64_t kernel_count;
    uint32_t workgroup[3]; /* invocations of a workgroup along x, y, z */
    uint32_t reserved;     /* 0 */
    void *context;         /* CUDA: the CUcontext; NULL elsewhere */
    void *stream;          /* CUDA: the CUstream that NULL stands for; NULL elsewhere */
    void *state;           /* what `call` looks at */
} vyre_callable_t;

/* Calls a function. On the CPU it has run to its end when this returns, in the calling thread, and `stream` is NULL. On CUDA it is enqueued on `stream` (a
 * CUstream), or where that is NULL on the device's own stream. It gives VYRE_OK, or a status, and then nothing ran. */
static inline int vyre_call(
    const vyre_callable_t *callable, void *const *addresses, const int64_t *sizes, const void *params, void *stream)
{
    return callable->call(callable, addresses, sizes, params, stream);
}

#ifdef __cplusplus
}
#endif

#endif
