/*
 * Kernels that are proved, and one for each doubt, for tests/unit/kernels/test_kernel_scan.c. A
 * name begins with what is found. Made into cubins by `make` here.
 */
#include <cassert>
#include <cstdio>

#define AT (threadIdx.x + blockIdx.x * blockDim.x)
#define KERNEL extern "C" __global__ void

struct list {
    int value[64];
};

KERNEL proved_add(float *x, const float *y, int n)
{
    if (AT < n)
        x[AT] += y[AT];
}

KERNEL proved_read_only(float4 *x, const float4 *__restrict__ y)
{
    x[AT] = y[AT];
}

/* A sum over the block, through shared memory, barriers and shuffles. */
KERNEL proved_block_sum(float *x)
{
    __shared__ float part[32];
    float sum = x[AT];

    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    part[threadIdx.x / 32] = sum;
    __syncthreads();
    x[AT] = part[threadIdx.y % 32];
}

/* Divisions of 64 bits and of doubles are subroutines in the kernel's own section. */
KERNEL proved_division(long long *x, double *y, long long by)
{
    x[AT] /= by;
    y[AT] = 1 / y[AT] + sqrt(y[AT]);
}

KERNEL proved_functions(double *x, float *y)
{
    x[AT] = exp(x[AT]);
    y[AT] = tanhf(y[AT]) + logf(y[AT]);
}

KERNEL proved_local(int *x, int from)
{
    int list[64];

    for (int i = 0; i < 64; i++)
        list[(i * from) & 63] = i;
    x[AT] = list[x[AT] & 63];
}

KERNEL proved_list(int *x, struct list list)
{
    x[AT] = list.value[AT & 63] + gridDim.y + blockDim.z;
}

KERNEL atomics_add(float *x)
{
    atomicAdd(x, 1.f);
}

KERNEL atomics_returned(int *x)
{
    x[AT + 1] = atomicAdd(x, 1);
}

KERNEL atomics_swap(int *x)
{
    x[AT + 1] = atomicCAS(x, 0, 1);
}

KERNEL atomics_shared(float *x)
{
    __shared__ float sum;

    if (!threadIdx.x)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[AT]);
    __syncthreads();
    x[AT] = sum;
}

KERNEL fences_device(int *x)
{
    x[AT] = 1;
    __threadfence();
    x[AT + 1] = 2;
}

KERNEL fences_sleep(int *x)
{
    __nanosleep(100);
    x[AT] = 1;
}

#if __CUDA_ARCH__ >= 900
KERNEL fences_dependency(int *x)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    x[AT] = 1;
}
#endif

KERNEL sharing_load(volatile int *x, int *y)
{
    y[AT] = x[AT];
}

KERNEL sharing_store(volatile int *x)
{
    x[AT] = 1;
}

KERNEL sharing_relaxed(int *x)
{
    int was;

    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(was) : "l"(x + 1) : "memory");
    x[AT] = was;
}

KERNEL clock_cycles(long long *x)
{
    x[AT] = clock64();
}

/* A kernel that stores one of PTX's special registers. */
#define STORES(name, type, bits, constraint, special)                                                                  \
    KERNEL name(type *x)                                                                                               \
    {                                                                                                                  \
        type value;                                                                                                    \
                                                                                                                       \
        asm volatile("mov.u" bits " %0, %%" special ";" : "=" constraint(value));                                      \
        x[AT] = value;                                                                                                 \
    }
#define STORES_32(name, special) STORES(name, int, "32", "r", special)
#define STORES_64(name, special) STORES(name, long long, "64", "l", special)

STORES_64(clock_timer, "globaltimer")
STORES_32(place_multiprocessor, "smid")
STORES_32(place_warp, "warpid")
STORES_32(launch_multiprocessors, "nsmid")
STORES_32(launch_environment, "envreg3")
STORES_64(launch_grid, "gridid")

/* The driver tells where the constant variables are. */
__constant__ int constant_by_address[64];
KERNEL launch_constant(int *x, int which)
{
    const int *from = which ? &constant_by_address[AT & 31] : x;

    x[AT] = *from;
}

KERNEL calls_pointer(int *x, int (*function)(int))
{
    x[AT] = function(x[AT]);
}

KERNEL variables_print(int *x)
{
    printf("%d\n", x[AT]);
}

KERNEL variables_assert(int *x)
{
    assert(x[AT]);
    x[AT] = 2;
}

__constant__ int constant[64];
__device__ int variable[64];

KERNEL variables_constant(int *x)
{
    x[AT] = constant[AT & 63];
}

KERNEL variables_constant_at_once(int *x)
{
    x[AT] = constant[5];
}

KERNEL variables_read(int *x)
{
    x[AT] = variable[AT & 63];
}

KERNEL variables_written(const int *x)
{
    variable[AT & 63] = x[AT];
}

/* The compiler's library keeps the coefficients in a constant variable. */
KERNEL variables_sine(double *x)
{
    x[AT] = sin(x[AT]);
}

KERNEL instruction_texture(float *x, cudaTextureObject_t texture)
{
    x[AT] = tex1Dfetch<float>(texture, AT);
}
