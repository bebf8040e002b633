/*
 * Memory that the program maps itself: cuMemCreate makes it, cuMemAddressReserve gives addresses,
 * and cuMemMap brings the two together. XLA takes every buffer so, and torch's expandable segments
 * grow so.
 *
 * Memory that the program creates is an allocation like any other, made at once, at addresses of
 * its own. The handle that the program gets is a token. Addresses that the program reserves come
 * from the device's area. A reservation of the size of the allocation just created gets its
 * addresses: mapping it there then takes nothing. Else the allocation goes there with its pages
 * (relocation.h). A reservation that holds several handles is a block that grows (blocks.h).
 *
 * Memory that can't be managed becomes CUDA's own, with its bytes, when the program asks for that.
 * From then on it is passed through. The handle of such memory is mapped twice or at addresses that
 * are not ours. Or it is given to another process or a multicast object.
 *
 * The functions stand for the driver's: same results, any thread. PS_NOT_OURS: ask the driver.
 */
#ifndef PS_PROGRAM_MAPPINGS_H
#define PS_PROGRAM_MAPPINGS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define PS_NOT_OURS ((CUresult)-1)

/*
 * Makes an allocation of `bytes` in the current context. The caller has seen that a span can have
 * these properties.
 */
CUresult ps_program_mappings_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                                    const CUmemAllocationProp *properties);

/* Release takes back one create or retain; the memory lives on while it is mapped. */
CUresult ps_program_mappings_release(CUmemGenericAllocationHandle handle);
CUresult ps_program_mappings_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr address);

CUresult ps_program_mappings_reserve(CUdeviceptr *address, size_t bytes, size_t alignment);
CUresult ps_program_mappings_free_addresses(CUdeviceptr address, size_t bytes);

CUresult ps_program_mappings_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                                 unsigned long long flags);
CUresult ps_program_mappings_unmap(CUdeviceptr address, size_t bytes);

/*
 * Returns whether managed memory is mapped at the address. Lowers `*end` to where that answer ends,
 * if that is before `end`.
 */
bool ps_program_mappings_is_ours(CUdeviceptr address, CUdeviceptr *end);

/*
 * Returns whether a span is at the address; the driver would answer by Penstock's mapping there.
 * `hidden`: the program has mapped nothing there that it has access to.
 */
bool ps_program_mappings_knows(CUdeviceptr address, bool *hidden);

/*
 * Sets and returns the access that the program gave the memory's own device. The device reads and
 * writes the memory in any case.
 */
void ps_program_mappings_set_access(CUdeviceptr address, CUmemAccess_flags access);
CUmemAccess_flags ps_program_mappings_access(CUdeviceptr address);

CUresult ps_program_mappings_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle);

/*
 * Gives the driver's handle for a token, whose memory becomes CUDA's own; gives other handles as
 * they are.
 */
CUresult ps_program_mappings_real(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *real);

/* Makes managed memory that is mapped in the range CUDA's own. */
CUresult ps_program_mappings_make_real(CUdeviceptr address, size_t bytes);

#endif
