/*
 * The policy interface: structures in, decisions out. Nothing here knows CUDA, does I/O, reads a clock or allocates; calls may be made
 * from any thread, on data that the caller owns and keeps still during the call.
 */
#ifndef PENSTOCK_POLICY_H
#define PENSTOCK_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows whenever a structure or a meaning in this file changes. */
#define PENSTOCK_POLICY_VERSION 1

/* A span that could give up its device pages now. The caller leaves out those that can't: in use, in grace, pinned, already moving. */
struct penstock_candidate {
    uint64_t bytes;       /* device bytes that evicting it sets free */
    uint64_t last_access; /* number of the kernel launch that last named it; launches are counted from the start of the program */
};

/*
 * Chooses what to evict. Writes the indices of the chosen candidates into `chosen`, which has room for n, in the order to evict them, and
 * returns how many there are. What is chosen covers `need_bytes` if all candidates together do; if they don't, every candidate with bytes
 * is chosen, and the caller sees from their sum that it wants more.
 */
typedef size_t (*penstock_choose_fn)(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

/*
 * Least recently used: the candidates idle longest (by last_access) are taken until the need is covered, larger first among equals, then by
 * index. Of those, the ones that the need is covered without are let go again, most recently used first, so that none of what is
 * chosen could be left out. About n + k log n operations for k taken.
 */
size_t penstock_lru_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

#ifdef __cplusplus
}
#endif

#endif
