/*
 * Modules and libraries. The simulator can't run an image's code. A loaded image gives a handle.
 * Its kernels are found by name among those that the program registered (same source, compiled for
 * the host). A name without host code is not found.
 */
#include <stdlib.h>

#include "engine.h"
#include "entries.h"
#include "kernels.h"

#define MODULE_TAG 0x6d6f6475u
#define LIBRARY_TAG 0x6c696272u

struct CUmod_st {
    uint32_t tag;
    const void *image;
};

struct CUlib_st {
    uint32_t tag;
    struct CUmod_st module;
};

CUresult cudasim_cuModuleLoadData(CUmodule *module, const void *image)
{
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    CUmodule made = malloc(sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUmod_st){MODULE_TAG, image};
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
    cudasim_lock();
    struct cudasim_kernel_entry *entry = cudasim_kernel_named(name);
    cudasim_unlock();
    if (!entry)
        return CUDA_ERROR_NOT_FOUND;
    cudasim_kernel_first_use(entry);
    *hfunc = &entry->function;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
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
    CUlibrary made = malloc(sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUlib_st){LIBRARY_TAG, {MODULE_TAG, code}};
    *library = made;
    return CUDA_SUCCESS;
}

static bool is_library(CUlibrary library)
{
    return library && library->tag == LIBRARY_TAG;
}

CUresult cudasim_cuLibraryUnload(CUlibrary library)
{
    if (!is_library(library))
        return CUDA_ERROR_INVALID_HANDLE;
    library->tag = 0;
    free(library);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    if (!is_library(library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct cudasim_kernel_entry *entry = cudasim_kernel_named(name);
    cudasim_unlock();
    if (!entry)
        return CUDA_ERROR_NOT_FOUND;
    *pKernel = &entry->kernel;
    return CUDA_SUCCESS;
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
