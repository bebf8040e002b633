/* Names: of errors, and of entry points (cuGetProcAddress). */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "entries.h"

/* ---- errors ---- */

static const char *error_name(CUresult error)
{
    switch (error) {
#define CUDASIM_ERROR(value)                                                                                                               \
    case value:                                                                                                                            \
        return #value;
#include "errors.def"
    default:
        return NULL;
    }
}

CUresult cudasim_cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = error_name(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGetErrorString(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    switch (error) {
    case CUDA_SUCCESS:
        *pStr = "no error";
        break;
    case CUDA_ERROR_OUT_OF_MEMORY:
        *pStr = "out of memory";
        break;
    case CUDA_ERROR_INVALID_VALUE:
        *pStr = "invalid argument";
        break;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        *pStr = "an illegal memory access was encountered";
        break;
    case CUDA_ERROR_NOT_SUPPORTED:
        *pStr = "operation not supported";
        break;
    default:
        *pStr = error_name(error);
        break;
    }
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- look-up by name ---- */

struct export
{
    const char *name;
    void *address;
};

/* Only the names and addresses matter here, so each function is declared as a bare symbol under a local alias. */
#define DECLARE_SYMBOL(exported) extern char exported##_symbol[] __asm__(#exported);
#define CUDASIM_ENTRY(needs, name, parameters, arguments) DECLARE_SYMBOL(name)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) DECLARE_SYMBOL(name) DECLARE_SYMBOL(name##_ptsz)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) DECLARE_SYMBOL(name) DECLARE_SYMBOL(name##_ptds)
#define CUDASIM_ENTRY_BARE(needs, name) DECLARE_SYMBOL(name)
#include "entry_points.def"
#define CUDASIM_UNSUPPORTED(name) DECLARE_SYMBOL(name)
#include "unsupported.def"

static const struct export exports[] = {
#define EXPORT(exported) {#exported, exported##_symbol},
#define CUDASIM_ENTRY(needs, name, parameters, arguments) EXPORT(name)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) EXPORT(name) EXPORT(name##_ptsz)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) EXPORT(name) EXPORT(name##_ptds)
#define CUDASIM_ENTRY_BARE(needs, name) EXPORT(name)
#include "entry_points.def"
#define CUDASIM_UNSUPPORTED(name) EXPORT(name)
#include "unsupported.def"
};

static void *find_export(const char *name)
{
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++)
        if (!strcmp(exports[i].name, name))
            return exports[i].address;
    return NULL;
}

/* The newest version of a base name, in its per-thread form when asked for and when there is one. */
static void *find_newest(const char *base, bool per_thread)
{
    static const char *const versions[] = {"_v4", "_v3", "_v2", ""};
    static const char *const per_thread_suffixes[] = {"_ptsz", "_ptds"};
    char name[128];
    for (size_t version = 0; version < sizeof versions / sizeof *versions; version++) {
        void *found = NULL;
        for (size_t suffix = 0; per_thread && !found && suffix < 2; suffix++) {
            snprintf(name, sizeof name, "%s%s%s", base, versions[version], per_thread_suffixes[suffix]);
            found = find_export(name);
        }
        if (!found) {
            snprintf(name, sizeof name, "%s%s", base, versions[version]);
            found = find_export(name);
        }
        if (found)
            return found;
    }
    return NULL;
}

CUresult cudasim_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *symbolStatus)
{
    if (!symbol || !pfn || cudaVersion <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = find_newest(symbol, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    if (symbolStatus)
        *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    /* With a status to look at, a name that is not found is no error of the call. */
    return *pfn || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
