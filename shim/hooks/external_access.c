#include "hooks/external_access.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cuda/driver.h"
#include "hooks/external_holds.h"
#include "hooks/hooks.h"
#include "hooks/program_mappings.h"
#include "hooks/symbol_lookup.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/residency.h"

/* ---- giving ---- */

/*
 * Holds memory that a call is about to give away. If may_be_given() is false, the caller must not
 * make the real call. After such a call other pages would come to lie there.
 */
static struct ps_external_hold give(CUdeviceptr first, size_t bytes)
{
    if (!ps_inside && ps_process_has_begun())
        /* CUDA's own memory can be given away even to calls that refuse spans. */
        ps_program_mappings_make_real(first, bytes);
    return ps_external_holds_begin(first, bytes);
}

static bool may_be_given(const struct ps_external_hold *gift)
{
    return gift->is_on_pages && gift->is_whole;
}

/*
 * Ends the hold after the real call, which was made or left out. If it succeeded, the spans stay on
 * their pages. Keeps errno.
 */
static void given(struct ps_external_hold *gift, const char *call, CUdeviceptr address, bool succeeded)
{
    int error = errno;
    CUdeviceptr start;
    size_t bytes;

    const size_t count = gift->count;
    if (succeeded)
        ps_external_holds_stays(gift, NULL);
    ps_external_holds_end(gift);
    if (count && succeeded)
        ps_log_debug(HOOKS, "%s: %zu spans stay on their pages", call, count);
    else if (count && !ps_residency_look_up(address, &start, &bytes))
        ps_log_warn_once(
            HOOKS,
            "%s: an allocation of %zu bytes can't be used by network cards and files while Penstock manages it; "
            "PENSTOCK_RULES='plain size>=%zu size<=%zu' leaves allocations of this size to CUDA",
            call, bytes, bytes, bytes);
    errno = error;
}

/* ---- the driver: dma-buf, and a call that programs make before they register memory ---- */

PS_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                                 CUmemRangeHandleType sort, unsigned long long flags)
{
    __typeof__(&cuMemGetHandleForAddressRange) real = PS_REAL_CUDA(cuMemGetHandleForAddressRange);

    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct ps_external_hold gift = give(address, bytes);
    CUresult result = may_be_given(&gift) ? real(handle, address, bytes, sort, flags) : CUDA_ERROR_NOT_SUPPORTED;
    given(&gift, "cuMemGetHandleForAddressRange", address, result == CUDA_SUCCESS);
    return result;
}

/*
 * Programs that register memory with cards want each copy into it to be over when its call returns.
 * The driver refuses that for mapped memory.
 */
PS_EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    __typeof__(&cuPointerSetAttribute) real = PS_REAL_CUDA(cuPointerSetAttribute);

    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !value || !*(const unsigned int *)value)
        return real(value, attribute, address);
    struct ps_external_hold gift = give(address, 1);
    CUresult result = may_be_given(&gift) ? real(value, attribute, address) : CUDA_ERROR_NOT_SUPPORTED;
    given(&gift, "cuPointerSetAttribute", address, result == CUDA_SUCCESS);
    return result;
}

/* ---- cuFile ---- */

/* The result type of cufile.h, a header that not every toolkit has. */
typedef struct {
    int err;
    CUresult cu_err;
} cufile_error;

#define CUFILE_SUCCESS 0
#define CUFILE_CUDA_DRIVER_ERROR 5011
#define CUFILE_DRIVER_NOT_INITIALIZED 5001

cufile_error cuFileBufRegister(const void *address, size_t bytes, int flags);
cufile_error cuFileBufDeregister(const void *address);

/* The real functions that the last look-up of each name found. */
static void *_Atomic looked_up_register;
static void *_Atomic looked_up_deregister;

void *ps_cufile_stand_in(const char *name, void *found)
{
    if (!strcmp(name, "cuFileBufRegister")) {
        atomic_store(&looked_up_register, found);
        return (void *)cuFileBufRegister;
    }
    if (!strcmp(name, "cuFileBufDeregister")) {
        atomic_store(&looked_up_deregister, found);
        return (void *)cuFileBufDeregister;
    }
    return found;
}

PS_EXPORT cufile_error cuFileBufRegister(const void *address, size_t bytes, int flags)
{
    __typeof__(&cuFileBufRegister) real = (__typeof__(real))ps_symbol_behind(
        "cuFileBufRegister", atomic_load(&looked_up_register), __builtin_return_address(0));
    cufile_error result = {CUFILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};

    if (!real)
        return result;
    struct ps_external_hold gift = give((CUdeviceptr)address, bytes);
    result = may_be_given(&gift) ? real(address, bytes, flags)
                                 : (cufile_error){CUFILE_CUDA_DRIVER_ERROR, CUDA_ERROR_OUT_OF_MEMORY};
    given(&gift, "cuFileBufRegister", (CUdeviceptr)address, result.err == CUFILE_SUCCESS);
    return result;
}

PS_EXPORT cufile_error cuFileBufDeregister(const void *address)
{
    __typeof__(&cuFileBufDeregister) real = (__typeof__(real))ps_symbol_behind(
        "cuFileBufDeregister", atomic_load(&looked_up_deregister), __builtin_return_address(0));
    cufile_error result = real ? real(address) : (cufile_error){CUFILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};

    if (result.err == CUFILE_SUCCESS && !ps_inside && ps_process_has_begun() &&
        ps_address_is_a_spans((CUdeviceptr)address))
        ps_residency_unpin((CUdeviceptr)address);
    return result;
}

/* ---- libibverbs: device memory by its address, if the kernel knows it (nvidia_peermem) ---- */

struct ibv_pd;
struct ibv_mr;
struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t bytes, int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *address, size_t bytes, uint64_t remote,
                                unsigned int access);

PS_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t bytes, int access)
{
    __typeof__(&ibv_reg_mr) real = (__typeof__(real))ps_symbol_behind("ibv_reg_mr", NULL, __builtin_return_address(0));
    struct ps_external_hold gift = give((CUdeviceptr)address, bytes);

    errno = real ? errno : ENOSYS;
    errno = may_be_given(&gift) ? errno : ENOMEM;
    struct ibv_mr *region = real && may_be_given(&gift) ? real(domain, address, bytes, access) : NULL;
    given(&gift, "ibv_reg_mr", (CUdeviceptr)address, region != NULL);
    return region;
}

PS_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *address, size_t bytes, uint64_t remote,
                                          unsigned int access)
{
    __typeof__(&ibv_reg_mr_iova2) real =
        (__typeof__(real))ps_symbol_behind("ibv_reg_mr_iova2", NULL, __builtin_return_address(0));
    struct ps_external_hold gift = give((CUdeviceptr)address, bytes);

    errno = real ? errno : ENOSYS;
    errno = may_be_given(&gift) ? errno : ENOMEM;
    struct ibv_mr *region = real && may_be_given(&gift) ? real(domain, address, bytes, remote, access) : NULL;
    given(&gift, "ibv_reg_mr_iova2", (CUdeviceptr)address, region != NULL);
    return region;
}
