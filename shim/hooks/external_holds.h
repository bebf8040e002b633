/*
 * Memory that a card, a file or a texture reaches later without naming it to the tracer. From the
 * call that tells of it, the bytes stay where the call finds them.
 *
 * Two clocks: host order alone. When ps_external_holds_begin returns, the bytes are there and their
 * reload is over. The next reader or writer has no stream that could wait.
 *
 * Any thread, without the registry lock.
 */
#ifndef PS_EXTERNAL_HOLDS_H
#define PS_EXTERNAL_HOLDS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_span;

/* Memory that is held while its call is made. */
struct ps_external_hold {
    unsigned device;
    struct ps_span **span; /* all spans that lie in it */
    size_t count, room;
    bool is_on_pages; /* all of it; else some got no pages and are held on their slots */
    bool is_whole;    /* false: there was no memory to hold all of it */
};

/*
 * Holds every span in the range; no span where Penstock does nothing. Ends with
 * ps_external_holds_end.
 */
struct ps_external_hold ps_external_holds_begin(CUdeviceptr first, size_t bytes);

/*
 * Keeps the held spans from eviction until they are freed or ps_external_holds_no_more. `numbers`,
 * of room for hold->count, receives their lives for that; or NULL. Keeps errno.
 */
void ps_external_holds_stays(const struct ps_external_hold *hold, uint64_t *numbers);

/* Ends the hold. Keeps errno. */
void ps_external_holds_end(struct ps_external_hold *hold);

/*
 * Lets the device's spans of those lives be evicted again, unless their lives are over or something
 * else keeps them. Two clocks: accesses that did not name them may still be queued, on any stream.
 * So that is noted as a use of theirs.
 */
void ps_external_holds_no_more(unsigned device, const uint64_t *numbers, size_t count);

#endif
