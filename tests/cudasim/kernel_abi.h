/*
 * How the simulated device finds and runs a sample's kernel.
 *
 * A sample is one .cu source. nvcc makes its device code for a GPU. From the same source comes, for
 * every kernel NAME, one exported object `cudasim_kernel_NAME` of the type below. The simulator
 * gets NAME (kernels are extern "C") from __cudaRegisterFunction. It looks the object up with
 * dlsym(RTLD_DEFAULT, ...), so samples are linked with -rdynamic. Nothing in here is used on a GPU.
 */
#ifndef CUDASIM_KERNEL_ABI_H
#define CUDASIM_KERNEL_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDASIM_KERNEL_ABI 1u
/* The same, of a kernel that can run a part of its items at a time (struct cudasim_launch). */
#define CUDASIM_KERNEL_ABI_IN_PARTS 2u

/*
 * One parameter as the compiler lays it out in the parameter bank: its offset from the first
 * parameter, and its size, both in bytes.
 */
struct cudasim_param {
    uint32_t offset;
    uint32_t size;
};

/*
 * The launch's shape: grid in blocks, block in threads, dynamic shared memory in bytes. One call
 * runs the items part, part + parts, ... A kernel that can't run in parts is called once, with part
 * 0 of 1.
 */
struct cudasim_launch {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t part, parts;
};

struct cudasim_kernel {
    uint32_t abi; /* CUDASIM_KERNEL_ABI or CUDASIM_KERNEL_ABI_IN_PARTS */
    uint32_t param_count;
    const struct cudasim_param *params;
    /*
     * Runs the grid, or one part of it, on the calling thread. params[i] points at a copy of
     * parameter i that the simulator made at launch.
     */
    void (*run)(const struct cudasim_launch *launch, void *const *params);
};

/*
 * Returns the address that a texture object over linear memory was made for, or NULL. The simulated
 * libcuda.so.1 exports it, and kernels look it up there. A GPU fetches through the object itself.
 * Any thread.
 */
const void *cudasim_texture(unsigned long long object) __attribute__((visibility("default")));

/*
 * Returns the address of a __device__ or __constant__ variable of the running kernel's module, in
 * the context of its launch. Returns NULL outside a kernel, and for a name that the module's cubin
 * lacks. The simulated libcuda.so.1 exports it.
 */
void *cudasim_variable(const char *name) __attribute__((visibility("default")));

/*
 * Launches an executable graph from the running kernel, as cudaGraphLaunch does on a GPU into
 * cudaStreamGraphFireAndForget. Returns 0, or -1 if this kernel may not launch it. The simulated
 * libcuda.so.1 exports it.
 */
int cudasim_graph_launch(void *executable) __attribute__((visibility("default")));

/*
 * Sets the condition behind a handle from the running kernel, as cudaGraphSetConditional does on a
 * GPU. Returns 0, or -1 if this kernel may not set it. The simulated libcuda.so.1 exports it.
 */
int cudasim_graph_set_conditional(unsigned long long handle, unsigned int value) __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif
#endif
