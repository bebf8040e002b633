/*
 * One way to write a kernel for a GPU and for the simulated device.
 *
 *     KERNEL(scale, (float *out, const float *in, float factor, size_t count), (out, in, factor, count))
 *     {
 *         FOR_EACH_ITEM(i, count)
 *             out[i] = factor * in[i];
 *     }
 *     ...
 *     LAUNCH(stream, count, scale, out, in, 2.0f, count);
 *
 * This makes two things from one body. The extern "C" __global__ function `scale` takes every n-th
 * item in each thread. The exported object `cudasim_kernel_scale` (tests/cudasim/kernel_abi.h) lets
 * the simulated device run the body, over all items or in parts.
 *
 * A body reads and writes a variable of the module (__device__ or __constant__) as VARIABLE(name).
 * On the simulated device that is the variable of the launch's context, not the host's shadow.
 *
 * Items must be independent of each other: no __syncthreads, no shared memory, no atomics. So the
 * values don't depend on the grid, and a run is deterministic to the bit on either device.
 */
#ifndef PENSTOCK_SAMPLES_KERNEL_H
#define PENSTOCK_SAMPLES_KERNEL_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#include <cuda_runtime.h>

#include "../cudasim/kernel_abi.h"
#include "check.h"

/*
 * The items that one thread works on: first, first + step, ... On the simulated device one call
 * takes all items, or every second one (CUDASIM_SPLIT_KERNELS).
 */
struct lane {
    size_t first;
    size_t step;
};

#define FOR_EACH_ITEM(index, count) for (size_t index = lane.first; index < (count); index += lane.step)

static __device__ inline struct lane lane_of_thread(void)
{
    return {blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x, gridDim.x * static_cast<size_t>(blockDim.x)};
}

#ifdef __CUDA_ARCH__
#define VARIABLE(name) (name)
#else
#define VARIABLE(name) (*host_variable<decltype(name)>(#name))
#endif

/* Only the simulated driver has the function, and only kernels on the host call it. */
template <typename Type> static inline Type *host_variable(const char *name)
{
    static const auto find = reinterpret_cast<__typeof__(&cudasim_variable)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cudasim_variable"));

    return static_cast<Type *>(find(name));
}

/* The simulated device's description of a kernel, made from the types of its body's parameters. */
template <auto Body> struct host_kernel;

template <typename... Params, void (*Body)(struct lane, Params...)> struct host_kernel<Body> {
    static_assert(sizeof...(Params) > 0, "a kernel without parameters can't name any memory");

    struct layout {
        struct cudasim_param param[sizeof...(Params)];
    };

    /*
     * Each parameter starts at the next multiple of its alignment. nvcc fills the parameter bank by
     * the same rule.
     */
    static constexpr struct layout make_layout(void)
    {
        struct layout made = {};
        uint32_t offset = 0;
        uint32_t index = 0;

        ((offset = (offset + alignof(Params) - 1) / alignof(Params) * alignof(Params),
          made.param[index++] = {offset, static_cast<uint32_t>(sizeof(Params))}, offset += sizeof(Params)),
         ...);
        return made;
    }

    static constexpr struct layout parameters = make_layout();
    static constexpr uint32_t count = sizeof...(Params);

    template <typename Param> static Param load(const void *bytes)
    {
        Param value;

        memcpy(&value, bytes, sizeof(value));
        return value;
    }

    template <size_t... Index> static void call(struct lane lane, void *const *params, std::index_sequence<Index...>)
    {
        Body(lane, load<Params>(params[Index])...);
    }

    static void run(const struct cudasim_launch *launch, void *const *params)
    {
        call({launch->part, launch->parts}, params, std::index_sequence_for<Params...>());
    }
};

/* The simulated device's function for set_condition, or NULL on a GPU. */
static inline __typeof__(&cudasim_graph_set_conditional) condition_setter(void)
{
    return reinterpret_cast<__typeof__(&cudasim_graph_set_conditional)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cudasim_graph_set_conditional"));
}

/* For a kernel in a graph: sets the condition behind the handle of a conditional node. */
static __host__ __device__ inline void set_condition(cudaGraphConditionalHandle handle, unsigned value)
{
#ifdef __CUDA_ARCH__
    cudaGraphSetConditional(handle, value);
#else
    condition_setter()(handle, value);
#endif
}

#define KERNEL_UNWRAP(...) __VA_ARGS__

#define KERNEL(name, params, args)                                                                                     \
    static __host__ __device__ inline void name##_body(struct lane lane, KERNEL_UNWRAP params);                        \
    extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) name(KERNEL_UNWRAP params)                              \
    {                                                                                                                  \
        name##_body(lane_of_thread(), KERNEL_UNWRAP args);                                                             \
    }                                                                                                                  \
    extern "C" {                                                                                                       \
    extern const struct cudasim_kernel cudasim_kernel_##name;                                                          \
    const struct cudasim_kernel cudasim_kernel_##name = {CUDASIM_KERNEL_ABI_IN_PARTS, host_kernel<name##_body>::count, \
                                                         host_kernel<name##_body>::parameters.param,                   \
                                                         host_kernel<name##_body>::run};                               \
    }                                                                                                                  \
    static __host__ __device__ inline void name##_body(struct lane lane, KERNEL_UNWRAP params)

/*
 * Threads of a block, and the most blocks of a grid. There may be more items than threads, because
 * threads loop.
 */
#define KERNEL_BLOCK 128
#define KERNEL_MAX_GRID 65535

static inline unsigned kernel_grid(size_t items)
{
    size_t blocks = (items + KERNEL_BLOCK - 1) / KERNEL_BLOCK;

    return blocks < 1 ? 1 : blocks > KERNEL_MAX_GRID ? KERNEL_MAX_GRID : static_cast<unsigned>(blocks);
}

#define LAUNCH(stream, items, name, ...)                                                                               \
    do {                                                                                                               \
        name<<<kernel_grid(items), KERNEL_BLOCK, 0, stream>>>(__VA_ARGS__);                                            \
        CHECK(cudaGetLastError());                                                                                     \
    } while (0)

#endif
