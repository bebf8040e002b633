/*
 * Modules and libraries. The simulator can't run an image's code. A loaded image gives a handle.
 * Its kernels are found by name among those that the program registered (same source, compiled for
 * the host). A name without host code is not found. Variables are read from the image (globals.h):
 * a module has one copy, in the context that loaded it, and a library one for each context.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "globals.h"
#include "kernels.h"

#define MODULE_TAG 0x6d6f6475u
#define LIBRARY_TAG 0x6c696272u

struct CUmod_st {
    uint32_t tag;
    bool is_of_library;                   /* it is one for all contexts */
    CUcontext context;                    /* NULL: the current one */
    struct cudasim_globals *globals;      /* NULL without variables */
    struct cudasim_kernel_entry *kernels; /* kernels with these variables that were asked for */
};

struct CUlib_st {
    uint32_t tag;
    bool registered; /* of the program's own image, which is never unloaded */
    struct CUmod_st module;
};

/* Kernels of unloaded modules. Launches that were queued or recorded may still name them. */
static struct cudasim_kernel_entry *left_over; /* under the device lock */

/*
 * Stores the kernel of that name, with the module's variables if it has any. Handles stay the same.
 */
static CUresult get_kernel(CUmodule module, const char *name, struct cudasim_kernel_entry **kernel)
{
    cudasim_lock();
    struct cudasim_kernel_entry *registered = cudasim_kernel_named(name), *entry = registered;
    if (registered && module->globals) {
        for (entry = module->kernels; entry && entry->registered != registered; entry = entry->next)
            continue;
        if (!entry && (entry = cudasim_kernel_in_module(registered, module->globals))) {
            entry->next = module->kernels;
            module->kernels = entry;
        }
    }
    cudasim_unlock();
    *kernel = entry;
    return entry ? CUDA_SUCCESS : registered ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_FOUND;
}

static CUresult get_global(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    CUcontext context = module->context ? module->context : cudasim_context_root(cudasim_context_current());
    if ((!address && !bytes) || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context || !context->legacy)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!module->globals)
        return CUDA_ERROR_NOT_FOUND;
    cudasim_lock();
    struct cudasim_variables *variables = cudasim_globals_in(module->globals, context);
    CUresult result = variables ? cudasim_variables_find(variables, name, address, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_unlock();
    return result;
}

/* Ends the handles of a module's kernels, and frees its variables. */
static void end_module(CUmodule module)
{
    cudasim_lock();
    if (module->globals)
        cudasim_globals_unload(module->globals);
    for (struct cudasim_kernel_entry *entry = module->kernels, *next; entry; entry = next) {
        next = entry->next;
        entry->kernel.tag = entry->function.tag = 0;
        entry->next = left_over;
        left_over = entry;
    }
    cudasim_unlock();
}

static CUresult read_image(const void *image, struct cudasim_globals **globals)
{
    cudasim_lock();
    CUresult result = cudasim_globals_read(image, SIZE_MAX, globals);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuModuleLoadData(CUmodule *module, const void *image)
{
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_globals *globals;
    CUresult result = read_image(image, &globals);
    if (result != CUDA_SUCCESS)
        return result;
    CUmodule made = malloc(sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUmod_st){
        .tag = MODULE_TAG, .context = cudasim_context_root(cudasim_context_current()), .globals = globals};
    *module = made;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                                    void **optionValues)
{
    (void)numOptions;
    (void)options;
    (void)optionValues;
    return cudasim_cuModuleLoadData(module, image);
}

CUresult cudasim_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cudasim_cuModuleLoadData(module, fatCubin);
}

CUresult cudasim_cuModuleUnload(CUmodule hmod)
{
    if (!hmod || hmod->tag != MODULE_TAG)
        return CUDA_ERROR_INVALID_HANDLE;
    if (hmod->is_of_library)
        return CUDA_ERROR_NOT_PERMITTED;
    end_module(hmod);
    hmod->tag = 0;
    free(hmod);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    if (!hmod || hmod->tag != MODULE_TAG)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_kernel_entry *entry;
    CUresult result = get_kernel(hmod, name, &entry);
    if (result != CUDA_SUCCESS)
        return result;
    cudasim_kernel_first_use(entry);
    *hfunc = &entry->function;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    if (!hmod || hmod->tag != MODULE_TAG)
        return CUDA_ERROR_INVALID_HANDLE;
    return get_global(dptr, bytes, hmod, name);
}

CUresult cudasim_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static CUlibrary new_library(struct cudasim_globals *globals, bool registered)
{
    CUlibrary made = malloc(sizeof *made);
    if (made)
        *made = (struct CUlib_st){.tag = LIBRARY_TAG,
                                  .registered = registered,
                                  .module = {.tag = MODULE_TAG, .is_of_library = true, .globals = globals}};
    return made;
}

CUlibrary cudasim_library_of_image(struct cudasim_globals *globals)
{
    return new_library(globals, true);
}

CUresult cudasim_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                   void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                   void **libraryOptionValues, unsigned int numLibraryOptions)
{
    (void)jitOptions;
    (void)jitOptionsValues;
    (void)numJitOptions;
    (void)libraryOptions;
    (void)libraryOptionValues;
    (void)numLibraryOptions;
    if (!library || !code)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_globals *globals;
    CUresult result = read_image(code, &globals);
    if (result != CUDA_SUCCESS)
        return result;
    *library = new_library(globals, false);
    return *library ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_library(CUlibrary library)
{
    return library && library->tag == LIBRARY_TAG;
}

CUresult cudasim_cuLibraryUnload(CUlibrary library)
{
    if (!is_library(library) || library->registered)
        return CUDA_ERROR_INVALID_HANDLE;
    end_module(&library->module);
    library->tag = library->module.tag = 0;
    free(library);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    if (!is_library(library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_kernel_entry *entry;
    CUresult result = get_kernel(&library->module, name, &entry);
    if (result == CUDA_SUCCESS)
        *pKernel = &entry->kernel;
    return result;
}

CUresult cudasim_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    return is_library(library) ? get_global(dptr, bytes, &library->module, name) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cudasim_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    if (!is_library(library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    *pMod = &library->module;
    return CUDA_SUCCESS;
}
