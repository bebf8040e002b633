/*
 * Spans at addresses that the program chose, because it maps its memory itself (program_mappings.h): an allocation goes from where it was made to where the
 * program wants it, with what it has of pages, slot and bytes.
 *
 * All of it at the device that the thread is at, with its context current, without the registry lock. The program does not use the memory meanwhile: to
 * CUDA it isn't mapped then. Any thread; who calls sees to it that nobody else places or frees there.
 */
#ifndef PS_RELOCATION_H
#define PS_RELOCATION_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct ps_block;

/* Addresses of the device's area, `alignment` a power of two; 0: there are none. / Takes back what lies in the stretch and nobody has. */
CUdeviceptr ps_relocation_take(size_t bytes, size_t alignment);

/*
 * The allocation at `from` goes to `to`, as a piece or several of the growing block `into`, or by itself (NULL). `placed`: the addresses there are the program's own;
 * otherwise they came from ps_relocation_take. Waits on the host for what is queued on it: not longer than a second, or -ETIMEDOUT. -EIO: the driver refused;
 * other -errno. On failure it is where it was.
 */
int ps_relocation_move(CUdeviceptr from, size_t bytes, CUdeviceptr to, struct ps_block *into, bool placed);

/* What lives in the stretch is at addresses of the program's own, and is there for its questions, or `hidden`. */
void ps_relocation_keep(CUdeviceptr address, size_t bytes, bool hidden);

/* What was freed in the stretch gives the addresses up, with its pages: waits on the host for its last uses. 0; -ETIMEDOUT after a second; -errno. */
int ps_relocation_clear(CUdeviceptr address, size_t bytes);

/* The program gives the addresses back: what is there, alive or freed, has its own from now on, and the rest is for other spans. */
void ps_relocation_give(CUdeviceptr address, size_t bytes);

#endif
