/*
 * CUDASIM_LEDGER=FILE: counts of what happened, as JSON, written by rename when the process exits.
 * Every function is thread-safe and may be called with or without the device lock, except where it
 * says otherwise.
 */
#ifndef CUDASIM_LEDGER_H
#define CUDASIM_LEDGER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

/* Objects that a clean program gives back before it ends. */
enum cudasim_object {
    CUDASIM_OBJECT_HANDLE,      /* of cuMemCreate, not released */
    CUDASIM_OBJECT_MAPPING,     /* of cuMemMap, not unmapped */
    CUDASIM_OBJECT_RESERVATION, /* of cuMemAddressReserve, not freed */
    CUDASIM_OBJECT_EVENT,
    CUDASIM_OBJECT_STREAM,
    CUDASIM_OBJECT_PLAIN,      /* cuMemAlloc */
    CUDASIM_OBJECT_POOLED,     /* cuMemAllocAsync */
    CUDASIM_OBJECT_PINNED,     /* cuMemHostAlloc */
    CUDASIM_OBJECT_REGISTERED, /* cuMemHostRegister */
    CUDASIM_OBJECT_MANAGED,    /* cuMemAllocManaged */
    CUDASIM_OBJECT_COUNT,
};

/* Accounts of held bytes. */
enum cudasim_account {
    CUDASIM_ACCOUNT_VMM,         /* device pages of handles */
    CUDASIM_ACCOUNT_PLAIN,       /* device bytes of cuMemAlloc */
    CUDASIM_ACCOUNT_POOL,        /* device bytes that pools hold, in use or not */
    CUDASIM_ACCOUNT_MANAGED,     /* device bytes of managed pages that are there now */
    CUDASIM_ACCOUNT_DEVICE,      /* the four above together */
    CUDASIM_ACCOUNT_HOST_HANDLE, /* host pages of handles */
    CUDASIM_ACCOUNT_PINNED,      /* cuMemHostAlloc and cuMemHostRegister */
    CUDASIM_ACCOUNT_COUNT,
};

void cudasim_ledger_call(unsigned int entry);
void cudasim_ledger_unsupported(const char *name);
void cudasim_ledger_object(enum cudasim_object object, int delta);
void cudasim_ledger_account(enum cudasim_account account, int64_t delta);
/* `asynchronous`: the call that copies takes a stream. */
void cudasim_ledger_bytes(enum cudasim_direction direction, bool asynchronous, uint64_t bytes);
void cudasim_ledger_kernel_ran(struct cudasim_kernel_entry *entry);
/*
 * Notes a queued kernel that ends a chain of `kernels` kernels, where each waits for the one
 * before.
 */
void cudasim_ledger_chain(uint64_t kernels);
void cudasim_ledger_unmapped_access(const char *name, uintptr_t address);
void cudasim_ledger_poison_copied(uint64_t pages);
void cudasim_ledger_sticky(CUresult error);
void cudasim_ledger_deadlock(void);
void cudasim_ledger_slice(void); /* a mapping of device pages took a time slice of a copy engine */
/*
 * A fault struck `call` (a constant of the process), made by code of the file `object`. `offset` is
 * the place in that file of its outermost function on the stack.
 */
void cudasim_ledger_fault_injected(const char *call, const char *object, uintptr_t offset);
/* Called around fork. The child starts with the lock free, and writes nothing when it ends. */
void cudasim_ledger_before_fork(void);
void cudasim_ledger_after_fork(bool in_child);

#endif
