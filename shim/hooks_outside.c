#include "hooks_outside.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver_lookup.h"
#include "growing.h"
#include "hooks.h"
#include "log.h"
#include "managed_context.h"
#include "mappings.h"
#include "process.h"
#include "real_cuda.h"
#include "registry.h"
#include "residency.h"

/* The driver's own function, NULL without a driver. */
#define REAL(name) (ps_real_cuda_load() ? NULL : (__typeof__(&(name)))ps_driver_function(PS_DRIVER_FUNCTION_##name))

/* ---- giving ---- */

/* Memory that a call is about to give away. */
struct gift {
    unsigned device;
    struct ps_span **span; /* all that lie in it; held */
    size_t count, room;
    bool is_on_pages; /* else the real call is not to be made: other pages would come to lie there */
};

/* False: no memory. */
static bool add(struct gift *gift, struct ps_span *span)
{
    struct ps_span **grown = ps_grown_array(gift->span, gift->count, &gift->room, 4, sizeof(struct ps_span *));

    if (!grown)
        return false;
    gift->span = grown;
    gift->span[gift->count++] = span;
    return true;
}

static struct gift give(CUdeviceptr first, size_t bytes)
{
    struct gift gift = {.is_on_pages = true};
    CUdeviceptr behind = first + (bytes ? bytes : 1);

    if (ps_inside || !ps_process_has_begun())
        return gift;
    ps_mappings_make_real(first, bytes); /* what the program maps itself may be given away as CUDA's own, whatever refuses spans */
    for (CUdeviceptr at = first; at < behind && ps_registry_owns(at);) {
        struct ps_span *span = ps_registry_at(at);
        if (span && !add(&gift, span)) {
            gift.is_on_pages = false;
            break;
        }
        at = span ? span->address + span->bytes : at + ps_reservation.granularity - at % ps_reservation.granularity;
    }
    if (!gift.count)
        return gift;
    gift.device = gift.span[0]->device;
    struct ps_managed_context context = ps_managed_context_enter_at(gift.device);
    gift.is_on_pages &= ps_residency_hold_settled(gift.span, &gift.count);
    ps_managed_context_leave(context);
    return gift;
}

/* The call has been made, or was not to be. Keeps errno. */
static void given(struct gift *gift, const char *call, CUdeviceptr address, bool succeeded)
{
    int error = errno;
    CUdeviceptr start;
    size_t bytes;

    if (!gift->count) {
        free(gift->span);
        return;
    }
    struct ps_managed_context context = ps_managed_context_enter_at(gift->device);
    if (succeeded)
        ps_residency_pin(gift->span, gift->count);
    ps_residency_let_go(gift->span, gift->count, NULL);
    ps_managed_context_leave(context);
    if (succeeded)
        ps_log_debug(HOOKS, "%s: %zu spans stay on their pages", call, gift->count);
    else if (!ps_residency_look_up(address, &start, &bytes))
        ps_log_warn_once(HOOKS,
                         "%s: an allocation of %zu bytes can't be reached by cards and files while Penstock manages it; "
                         "PENSTOCK_RULES='plain size>=%zu size<=%zu' leaves those of its size to CUDA",
                         call, bytes, bytes, bytes);
    free(gift->span);
    errno = error;
}

/* ---- the driver: dma-buf, and what programs ask for before they register memory ---- */

PS_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType sort,
                                                 unsigned long long flags)
{
    __typeof__(&cuMemGetHandleForAddressRange) real = REAL(cuMemGetHandleForAddressRange);

    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct gift gift = give(address, bytes);
    CUresult result = gift.is_on_pages ? real(handle, address, bytes, sort, flags) : CUDA_ERROR_NOT_SUPPORTED;
    given(&gift, "cuMemGetHandleForAddressRange", address, result == CUDA_SUCCESS);
    return result;
}

/* Programs that register memory with cards want copies into it to be over when the call returns; the driver refuses that for mapped memory. */
PS_EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    __typeof__(&cuPointerSetAttribute) real = REAL(cuPointerSetAttribute);

    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !value || !*(const unsigned int *)value)
        return real(value, attribute, address);
    struct gift gift = give(address, 1);
    CUresult result = gift.is_on_pages ? real(value, attribute, address) : CUDA_ERROR_NOT_SUPPORTED;
    given(&gift, "cuPointerSetAttribute", address, result == CUDA_SUCCESS);
    return result;
}

/* ---- cuFile ---- */

/* As in cufile.h, which not every toolkit has. */
typedef struct {
    int err;
    CUresult cu_err;
} cufile_error;

#define CUFILE_SUCCESS 0
#define CUFILE_CUDA_DRIVER_ERROR 5011
#define CUFILE_DRIVER_NOT_INITIALIZED 5001

cufile_error cuFileBufRegister(const void *address, size_t bytes, int flags);
cufile_error cuFileBufDeregister(const void *address);

/* What the last look-up of each would have found. */
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
    __typeof__(&cuFileBufRegister) real =
        (__typeof__(real))ps_symbol_behind("cuFileBufRegister", atomic_load(&looked_up_register), __builtin_return_address(0));
    cufile_error result = {CUFILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};

    if (!real)
        return result;
    struct gift gift = give((CUdeviceptr)address, bytes);
    result = gift.is_on_pages ? real(address, bytes, flags) : (cufile_error){CUFILE_CUDA_DRIVER_ERROR, CUDA_ERROR_OUT_OF_MEMORY};
    given(&gift, "cuFileBufRegister", (CUdeviceptr)address, result.err == CUFILE_SUCCESS);
    return result;
}

PS_EXPORT cufile_error cuFileBufDeregister(const void *address)
{
    __typeof__(&cuFileBufDeregister) real =
        (__typeof__(real))ps_symbol_behind("cuFileBufDeregister", atomic_load(&looked_up_deregister), __builtin_return_address(0));
    cufile_error result = real ? real(address) : (cufile_error){CUFILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};

    if (result.err == CUFILE_SUCCESS && !ps_inside && ps_process_has_begun() && ps_registry_owns((CUdeviceptr)address))
        ps_residency_unpin((CUdeviceptr)address);
    return result;
}

/* ---- libibverbs: memory of the GPU by its address, where the kernel knows of it (nvidia_peermem) ---- */

struct ibv_pd;
struct ibv_mr;
struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t bytes, int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *address, size_t bytes, uint64_t remote, unsigned int access);

PS_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t bytes, int access)
{
    __typeof__(&ibv_reg_mr) real = (__typeof__(real))ps_symbol_behind("ibv_reg_mr", NULL, __builtin_return_address(0));
    struct gift gift = give((CUdeviceptr)address, bytes);

    errno = real ? errno : ENOSYS;
    errno = gift.is_on_pages ? errno : ENOMEM;
    struct ibv_mr *region = real && gift.is_on_pages ? real(domain, address, bytes, access) : NULL;
    given(&gift, "ibv_reg_mr", (CUdeviceptr)address, region != NULL);
    return region;
}

PS_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *address, size_t bytes, uint64_t remote, unsigned int access)
{
    __typeof__(&ibv_reg_mr_iova2) real = (__typeof__(real))ps_symbol_behind("ibv_reg_mr_iova2", NULL, __builtin_return_address(0));
    struct gift gift = give((CUdeviceptr)address, bytes);

    errno = real ? errno : ENOSYS;
    errno = gift.is_on_pages ? errno : ENOMEM;
    struct ibv_mr *region = real && gift.is_on_pages ? real(domain, address, bytes, remote, access) : NULL;
    given(&gift, "ibv_reg_mr_iova2", (CUdeviceptr)address, region != NULL);
    return region;
}
