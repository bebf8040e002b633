/*
 * Memory that the program maps itself: cuMemCreate makes it, cuMemAddressReserve gives addresses, cuMemMap brings the two together. XLA takes every buffer
 * so, torch's expandable segments grow so.
 *
 * What the program creates is an allocation like any other, made at once, at addresses of its own; the handle that the program gets is a token. Addresses
 * that the program reserves come from the device's area, those of the allocation just created if they are as many: then mapping it there takes nothing.
 * Else the allocation goes there with its pages (relocation.h). A reservation that holds several handles is a block that grows (blocks.h).
 *
 * What can't be managed becomes CUDA's own memory, bytes and all, when the program asks for it, and is passed on from then on: a handle that is mapped twice or at addresses
 * that are not ours, or that is given to another process or a multicast object.
 *
 * The functions stand for the driver's: same results, any thread. PS_NOT_OURS: the driver is to be asked.
 */
#ifndef PS_PROGRAM_MAPPINGS_H
#define PS_PROGRAM_MAPPINGS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define PS_NOT_OURS ((CUresult)-1)

/* An allocation of that many bytes was asked for, in the current context, with properties that a span can have (as the caller has seen). */
CUresult ps_program_mappings_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties);

/* Each release takes back what create, or retain, gave; the memory lives on while it is mapped. */
CUresult ps_program_mappings_release(CUmemGenericAllocationHandle handle);
CUresult ps_program_mappings_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr address);

CUresult ps_program_mappings_reserve(CUdeviceptr *address, size_t bytes, size_t alignment);
CUresult ps_program_mappings_free_addresses(CUdeviceptr address, size_t bytes);

CUresult ps_program_mappings_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                                 unsigned long long flags);
CUresult ps_program_mappings_unmap(CUdeviceptr address, size_t bytes);

/* Whether the address is of managed memory that is mapped there, and where what is so of it ends: before `end`, or there. */
bool ps_program_mappings_is_ours(CUdeviceptr address, CUdeviceptr *end);

/*
 * Whether there is a span at the address, of which the driver would tell by what Penstock has mapped there; `hidden`: and the program has mapped nothing there
 * that it has access to.
 */
bool ps_program_mappings_knows(CUdeviceptr address, bool *hidden);

/* The access that the program gave the memory's own device, and what it has. It reads and writes the memory in any case. */
void ps_program_mappings_set_access(CUdeviceptr address, CUmemAccess_flags access);
CUmemAccess_flags ps_program_mappings_access(CUdeviceptr address);

CUresult ps_program_mappings_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle);

/* The driver's handle for a token, whose memory becomes CUDA's own; other handles as they are. */
CUresult ps_program_mappings_real(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *real);

/* What of it is mapped in the stretch becomes CUDA's own memory. */
CUresult ps_program_mappings_make_real(CUdeviceptr address, size_t bytes);

#endif
