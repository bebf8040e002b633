/*
 * Moves spans to addresses that the program chose, because it maps its memory itself
 * (program_mappings.h). An allocation goes from where it was made to where the program wants it.
 * Its pages, slot and bytes go with it.
 *
 * All functions work at the device that the thread is at, with its context current. The program
 * does not use the memory meanwhile, since to CUDA it is not mapped then.
 *
 * Threads: any, without the registry lock. The caller makes sure that no other thread places or
 * frees spans there.
 */
#ifndef PS_RELOCATION_H
#define PS_RELOCATION_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct ps_block;

/*
 * Takes addresses from the device's area. `alignment`: a power of two, or 0. Returns 0 if no
 * addresses are left.
 */
CUdeviceptr ps_relocation_take(size_t bytes, size_t alignment);

/*
 * Moves the allocation at `from` to `to`. It becomes one or more pieces of the growing block
 * `into`, or stands by itself (NULL). `placed`: the addresses at `to` are the program's own.
 * Otherwise they came from ps_relocation_take.
 *
 * Waits on the host for the work that is queued on the allocation, at most a second for each span.
 * On failure the allocation is where it was.
 * 0; -ETIMEDOUT: the second is over; -EIO: the driver refused; other -errno.
 */
int ps_relocation_move(CUdeviceptr from, size_t bytes, CUdeviceptr to, struct ps_block *into, bool placed);

/*
 * The live spans in the range are at addresses of the program's own. The program's queries find
 * them, unless `hidden`.
 */
void ps_relocation_keep(CUdeviceptr address, size_t bytes, bool hidden);

/*
 * Makes the freed spans in the range give up their addresses and pages. Waits on the host for their
 * last uses.
 * 0; -ETIMEDOUT after a second; -EINVAL: a live span is there.
 */
int ps_relocation_clear(CUdeviceptr address, size_t bytes);

/*
 * The program gives the range back. A span there, live or freed, keeps its addresses as its own
 * from now on. The other addresses are free for other spans.
 */
void ps_relocation_give(CUdeviceptr address, size_t bytes);

#endif
