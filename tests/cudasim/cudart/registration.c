/*
 * Data that a program's start-up code gives the runtime: its fatbinaries, for each kernel its host
 * stub's address and its name, and for each variable its host shadow's address and its name.
 *
 * Start-up runs before main, so nothing here calls the driver until the first look-up of a kernel.
 * Names and images are copied then. The driver keeps them until the process ends, while a closed
 * shared object takes its own copies with it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fatbin.h"
#include "runtime.h"

struct fatbin {
    const void *wrapper;
    struct function *functions; /* guarded by lock; newest first */
    struct variable *variables; /* guarded by lock; newest first */
    CUlibrary library;          /* guarded by lock; NULL before the first look-up of a variable */
    /*
     * Copy that the driver reads; NULL before the first kernel's look-up, or without a readable
     * one.
     */
    void *cubin;
    size_t cubin_bytes;
    bool cubin_sought;
};

struct function {
    const void *stub; /* key of the tree: the host function's address */
    const char *name; /* in the program until the kernel is registered */
    struct fatbin *fatbin;
    struct function *next_in_fatbin;
    CUkernel kernel; /* NULL before the first look-up */
};

struct variable {
    const void *shadow; /* key of the tree: the host variable's address */
    const char *name;   /* in the program */
    struct fatbin *fatbin;
    struct variable *next_in_fatbin;
};

/* A handle that was given out. It lives until the process ends, like the driver's own handle. */
struct known_kernel {
    CUkernel kernel;
    char *name;
    void *cubin; /* kept reachable for leak checkers; several kernels share one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *functions_by_stub;   /* tsearch tree of struct function, guarded by lock */
static void *variables_by_shadow; /* tsearch tree of struct variable, guarded by lock */
static void *known_kernels;       /* tsearch tree of struct known_kernel, guarded by lock */

/* Compares addresses as numbers, because the pointers lead into unrelated objects. */
static int compare_pointers(const void *a, const void *b)
{
    uintptr_t first = (uintptr_t)a;
    uintptr_t second = (uintptr_t)b;
    return first < second ? -1 : first > second;
}

static int compare_functions(const void *a, const void *b)
{
    return compare_pointers(((const struct function *)a)->stub, ((const struct function *)b)->stub);
}

static int compare_variables(const void *a, const void *b)
{
    return compare_pointers(((const struct variable *)a)->shadow, ((const struct variable *)b)->shadow);
}

static int compare_kernels(const void *a, const void *b)
{
    return compare_pointers(((const struct known_kernel *)a)->kernel, ((const struct known_kernel *)b)->kernel);
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    struct fatbin *fatbin = calloc(1, sizeof *fatbin);
    if (fatbin != NULL)
        fatbin->wrapper = wrapper;
    /* The caller only hands the value back. */
    return (void **)fatbin;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    struct fatbin *fatbin = (struct fatbin *)handle;
    if (fatbin == NULL)
        return;
    pthread_mutex_lock(&lock);
    struct function *function = fatbin->functions;
    while (function != NULL) {
        struct function *next = function->next_in_fatbin;
        struct function *const *node = tfind(function, &functions_by_stub, compare_functions);
        if (node != NULL && *node == function)
            tdelete(function, &functions_by_stub, compare_functions);
        free(function);
        function = next;
    }
    for (struct variable *variable = fatbin->variables, *next; variable != NULL; variable = next) {
        next = variable->next_in_fatbin;
        struct variable *const *node = tfind(variable, &variables_by_shadow, compare_variables);
        if (node != NULL && *node == variable)
            tdelete(variable, &variables_by_shadow, compare_variables);
        free(variable);
    }
    pthread_mutex_unlock(&lock);
    free(fatbin);
}

void __cudaRegisterFunction(void **handle, const char *stub, char *device_stub, const char *name, int thread_limit,
                            void *tid, void *bid, void *block, void *grid, int *warp_size)
{
    (void)device_stub, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
    struct function *function = handle != NULL ? calloc(1, sizeof *function) : NULL;
    if (function == NULL)
        return;
    function->stub = stub;
    function->name = name;
    function->fatbin = (struct fatbin *)handle;
    pthread_mutex_lock(&lock);
    struct function **node = tsearch(function, &functions_by_stub, compare_functions);
    if (node != NULL && *node == function) {
        function->next_in_fatbin = function->fatbin->functions;
        function->fatbin->functions = function;
        function = NULL;
    }
    pthread_mutex_unlock(&lock);
    /* It was registered before, or there is no memory; an earlier one stays. */
    free(function);
}

/*
 * The host's variable of that name is only a shadow, whose address names the device's. Kernels'
 * host versions find the device's through cudasim_variable (kernel_abi.h).
 */
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name, int external,
                       size_t bytes, int constant, int global)
{
    (void)device_address, (void)external, (void)bytes, (void)constant, (void)global;
    cudasim_count_runtime_call(__func__, 1);
    struct variable *variable = handle != NULL ? calloc(1, sizeof *variable) : NULL;
    if (variable == NULL)
        return;
    variable->shadow = host_variable;
    variable->name = name;
    variable->fatbin = (struct fatbin *)handle;
    pthread_mutex_lock(&lock);
    struct variable **node = tsearch(variable, &variables_by_shadow, compare_variables);
    if (node != NULL && *node == variable) {
        variable->next_in_fatbin = variable->fatbin->variables;
        variable->fatbin->variables = variable;
        variable = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(variable); /* it was registered before, or there is no memory */
}

/*
 * Managed variables would need an address in the program's pointer before main; a kernel that uses
 * one would read address 0.
 */
void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address, const char *name, int external,
                              size_t bytes, int constant, int global)
{
    (void)handle, (void)host_pointer, (void)device_address, (void)external, (void)bytes, (void)constant, (void)global;
    cudasim_count_runtime_call(__func__, 0);
    fprintf(stderr, "cudasim: managed variable %s is not simulated\n", name);
}

char __cudaInitModule(void **handle)
{
    return handle != NULL;
}

/*
 * Returns the host version of a kernel: an exported object of the program. If the shared object
 * that registered the kernel was opened without RTLD_GLOBAL, it comes from that object. Returns
 * NULL without one, or if it has another ABI. Called without lock, because a thread inside dlopen
 * holds the loader's lock while its constructors take ours.
 */
static const struct cudasim_kernel *find_host_kernel(const void *stub, const char *name)
{
    char symbol[512];
    int length = snprintf(symbol, sizeof symbol, "cudasim_kernel_%s", name);
    if (length < 0 || (size_t)length >= sizeof symbol)
        return NULL;

    const struct cudasim_kernel *kernel = dlsym(RTLD_DEFAULT, symbol);
    Dl_info owner;
    if (kernel == NULL && dladdr(stub, &owner) != 0) {
        void *object = dlopen(owner.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (object != NULL) {
            kernel = dlsym(object, symbol);
            dlclose(object);
        }
    }
    if (kernel == NULL) {
        fprintf(stderr, "cudasim: kernel %s has no host version (%s is not exported; link with -rdynamic)\n", name,
                symbol);
        return NULL;
    }
    if ((kernel->abi != CUDASIM_KERNEL_ABI && kernel->abi != CUDASIM_KERNEL_ABI_IN_PARTS) || kernel->run == NULL ||
        (kernel->param_count != 0 && kernel->params == NULL)) {
        fprintf(stderr, "cudasim: %s is not of kernel ABI %u or %u\n", symbol, CUDASIM_KERNEL_ABI,
                CUDASIM_KERNEL_ABI_IN_PARTS);
        return NULL;
    }
    return kernel;
}

/*
 * Stores the capability of the simulated device, 10 * major + minor. With it the driver announces
 * the image that a GPU would load.
 */
static CUresult device_sm(unsigned *sm)
{
    CUdevice device;
    int major = 0;
    int minor = 0;
    CUresult result = cudasim_device_from_ordinal(0, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (result == CUDA_SUCCESS)
        *sm = (unsigned)(10 * major + minor);
    return result;
}

/*
 * Copies the fatbinary's cubin for the driver. A program without a readable one (compressed, other
 * architectures) still runs here. The driver then has no image to announce. Holds lock.
 */
static void copy_cubin(struct fatbin *fatbin, unsigned sm)
{
    const void *container;
    size_t bytes;
    struct cudasim_image image;

    if (fatbin->cubin_sought)
        return;
    fatbin->cubin_sought = true;
    if (cudasim_fatbin_container(fatbin->wrapper, &container, &bytes) != 0 ||
        cudasim_fatbin_find_cubin(container, bytes, sm, &image) != 0)
        return;
    fatbin->cubin = malloc(image.size);
    if (fatbin->cubin == NULL)
        return;
    memcpy(fatbin->cubin, image.bytes, image.size);
    fatbin->cubin_bytes = image.size;
}

/*
 * Gives `function` its driver handle. Holds lock, because registry.h promises that
 * cudasim_register_kernel makes no callback.
 */
static CUresult register_kernel(struct function *function, const struct cudasim_kernel *host, unsigned sm)
{
    struct known_kernel *known = calloc(1, sizeof *known);
    if (known == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    known->name = strdup(function->name);
    if (known->name == NULL) {
        free(known);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    copy_cubin(function->fatbin, sm);
    known->cubin = function->fatbin->cubin;
    known->kernel = cudasim_register_kernel(known->name, host, known->cubin, function->fatbin->cubin_bytes);
    /*
     * From here on the driver may hold the name. So it stays even if the tree can't take the entry.
     */
    if (known->kernel == NULL || tsearch(known, &known_kernels, compare_kernels) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->kernel = known->kernel;
    return CUDA_SUCCESS;
}

/* Returns whether `kernel` was given out before. Takes lock. */
static bool is_known_kernel(CUkernel kernel)
{
    struct known_kernel key = {.kernel = kernel};
    pthread_mutex_lock(&lock);
    bool known = tfind(&key, &known_kernels, compare_kernels) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

/* Returns the function that was registered for the host stub at `stub`, or NULL. Holds lock. */
static struct function *function_at(const void *stub)
{
    struct function key = {.stub = stub};
    struct function *const *node = tfind(&key, &functions_by_stub, compare_functions);
    return node != NULL ? *node : NULL;
}

CUresult cudasim_kernel_from_symbol(const void *func, CUkernel *kernel)
{
    unsigned sm;
    CUresult result = device_sm(&sm);
    if (result != CUDA_SUCCESS)
        return result;

    *kernel = NULL;
    pthread_mutex_lock(&lock);
    struct function *function = function_at(func);
    if (function != NULL)
        *kernel = function->kernel;
    const char *name = function != NULL ? function->name : NULL;
    pthread_mutex_unlock(&lock);
    if (*kernel != NULL)
        return CUDA_SUCCESS;
    if (name == NULL) {
        /* Since CUDA 12 a kernel handle may replace a stub's address. */
        if (!is_known_kernel((CUkernel)func))
            return CUDA_ERROR_INVALID_HANDLE;
        *kernel = (CUkernel)func;
        return CUDA_SUCCESS;
    }

    const struct cudasim_kernel *host = find_host_kernel(func, name);
    if (host == NULL)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    pthread_mutex_lock(&lock);
    /* Another thread may meanwhile have registered it, or closed its object. */
    function = function_at(func);
    if (function == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (function->kernel == NULL)
        result = register_kernel(function, host, sm);
    if (result == CUDA_SUCCESS)
        *kernel = function->kernel;
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cudasim_variable_from_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
    const struct variable key = {.shadow = symbol};
    const char *name = NULL;
    CUlibrary library = NULL;
    unsigned sm;
    CUresult result = device_sm(&sm);
    if (result != CUDA_SUCCESS)
        return result;

    pthread_mutex_lock(&lock);
    struct variable *const *node = tfind(&key, &variables_by_shadow, compare_variables);
    if (node != NULL) {
        struct fatbin *fatbin = (*node)->fatbin;
        name = (*node)->name;
        copy_cubin(fatbin, sm);
        if (fatbin->library == NULL && fatbin->cubin != NULL)
            fatbin->library = cudasim_register_image(fatbin->cubin, fatbin->cubin_bytes);
        library = fatbin->library;
    }
    pthread_mutex_unlock(&lock);
    if (name != NULL && library == NULL)
        fprintf(stderr, "cudasim: variable %s is in no cubin that can be read (compile with -compress-mode none)\n",
                name);
    return library != NULL ? cuLibraryGetGlobal(address, bytes, library, name) : CUDA_ERROR_NOT_FOUND;
}

cudaError_t cudasim_variable_lookup_failed(CUresult result)
{
    return cudasim_runtime_fail(result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol
                                                               : cudasim_translate_error(result));
}

cudaError_t cudasim_kernel_lookup_failed(CUresult result)
{
    return cudasim_runtime_fail(result == CUDA_ERROR_INVALID_HANDLE ? cudaErrorInvalidDeviceFunction
                                                                    : cudasim_translate_error(result));
}

static cudaError_t get_kernel(const char *entry_point, cudaKernel_t *kernel, const void *stub)
{
    CUkernel handle;
    CUresult result = cudasim_runtime_begin(entry_point);
    if (kernel == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cudasim_kernel_from_symbol(stub, &handle);
    if (result != CUDA_SUCCESS)
        return cudasim_kernel_lookup_failed(result);
    *kernel = (cudaKernel_t)handle;
    return cudaSuccess;
}

/* Called by a kernel's stub before its first launch. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub)
{
    return get_kernel(__func__, kernel, stub);
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *stub)
{
    return get_kernel(__func__, kernel, stub);
}
