/* Names: of errors, and of entry points (cuGetProcAddress). */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"

/* ---- errors ---- */

static const char *error_name(CUresult error)
{
    switch (error) {
#define CUDASIM_ERROR(value)                                                                                           \
    case value:                                                                                                        \
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
    bool implemented;
};

/*
 * Only names and addresses matter here, so each function is declared as a bare symbol under a local
 * alias.
 */
#define DECLARE_SYMBOL(exported) extern char exported##_symbol[] __asm__(#exported);
#define CUDASIM_ENTRY(needs, name, parameters, arguments) DECLARE_SYMBOL(name)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) DECLARE_SYMBOL(name) DECLARE_SYMBOL(name##_ptsz)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) DECLARE_SYMBOL(name) DECLARE_SYMBOL(name##_ptds)
#define CUDASIM_ENTRY_BARE(needs, name) DECLARE_SYMBOL(name)
#include "entry_points.def"
#define CUDASIM_UNSUPPORTED(name) DECLARE_SYMBOL(name)
#include "unsupported.def"

static struct export exports[] = {
#define EXPORT(exported) {#exported, exported##_symbol, IMPLEMENTED},
#define IMPLEMENTED true
#define CUDASIM_ENTRY(needs, name, parameters, arguments) EXPORT(name)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) EXPORT(name) EXPORT(name##_ptsz)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) EXPORT(name) EXPORT(name##_ptds)
#define CUDASIM_ENTRY_BARE(needs, name) EXPORT(name)
#include "entry_points.def"
#undef IMPLEMENTED
#define IMPLEMENTED false
#define CUDASIM_UNSUPPORTED(name) EXPORT(name)
#include "unsupported.def"
};

#define EXPORTS (sizeof exports / sizeof *exports)

/* Returns whether a driver of this version has the function. */
static bool is_there(const char *name)
{
#if CUDASIM_CUDA_VERSION < 13000
    static const char *const newer[] = {
#define CUDASIM_NEWER(name) #name,
#include "newer.def"
    };

    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (!strcmp(name, newer[i]))
            return false;
#endif
    (void)name;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct export *)a)->name, ((const struct export *)b)->name);
}

static pthread_once_t sorted = PTHREAD_ONCE_INIT;

static void sort_exports(void)
{
    qsort(exports, EXPORTS, sizeof *exports, by_name);
}

/* Returns the index of the first export that is not before the name in order. */
static size_t first_from(const char *name)
{
    size_t low = 0, high = EXPORTS;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(exports[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * Reads the rest of an exported name after its base: an optional version (_v2 and so on), then an
 * optional twin's suffix. Returns false for another name.
 */
static bool read_suffix(const char *suffix, unsigned *version, bool *twin)
{
    *version = 1;
    if (suffix[0] == '_' && suffix[1] == 'v' && suffix[2] >= '2' && suffix[2] <= '9') {
        *version = (unsigned)(suffix[2] - '0');
        suffix += 3;
    }
    *twin = !strcmp(suffix, "_ptsz") || !strcmp(suffix, "_ptds");
    return *twin || !*suffix;
}

/*
 * Returns the newest implemented version of a base name, else the newest. It is the per-thread form
 * if that is asked for and exists. The real driver goes by the CUDA version in the call. Its
 * runtime asks for the version that it knows.
 */
static void *find_newest(const char *base, bool per_thread)
{
    size_t length = strlen(base);
    unsigned newest = 0;
    void *found = NULL;

    pthread_once(&sorted, sort_exports);
    for (size_t i = first_from(base); i < EXPORTS && !strncmp(exports[i].name, base, length); i++) {
        unsigned version;
        bool twin;
        if (!read_suffix(exports[i].name + length, &version, &twin) || (twin && !per_thread) ||
            !is_there(exports[i].name))
            continue;
        unsigned rank = 2 * version + twin + (exports[i].implemented ? 100 : 0);
        if (rank > newest) {
            newest = rank;
            found = exports[i].address;
        }
    }
    return found;
}

CUresult cudasim_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *symbolStatus)
{
    if (!symbol || !pfn || cudaVersion <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = find_newest(symbol, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    if (symbolStatus)
        *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    /* With a status to report it, a missing name is no error of the call. */
    return *pfn || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
