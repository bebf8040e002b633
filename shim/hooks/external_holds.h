/*
 * Memory that something reaches later without naming it to the tracer: a card, a file, a texture. From the call that tells of it on, the bytes stay where
 * they are found then.
 *
 * Two clocks: host order alone. What is asked for is there when ps_external_holds_begin returns, its reload over, since whoever comes next has no stream that could
 * wait.
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
    struct ps_span **span; /* all that lie in it */
    size_t count, room;
    bool is_on_pages; /* all of it; else some could be had no pages, and is held on its slot */
    bool is_whole;    /* false: there was no memory to hold all of it */
};

/* Holds every span in the range; none where Penstock does nothing. Ends with ps_external_holds_end. */
struct ps_external_hold ps_external_holds_begin(CUdeviceptr first, size_t bytes);

/*
 * The spans that are held are no victims from now on, until they are freed or ps_external_holds_no_more. `numbers`, of room for staying->count, or NULL: their lives, for
 * that. Keeps errno.
 */
void ps_external_holds_stays(const struct ps_external_hold *staying, uint64_t *numbers);

/* Lets go of them. Keeps errno. */
void ps_external_holds_end(struct ps_external_hold *staying);

/*
 * Those lives of the device's spans that aren't over are victims again, as far as nothing else keeps them. Two clocks: what reached them without naming them may
 * be queued still, on any stream, so that is noted as a use of theirs.
 */
void ps_external_holds_no_more(unsigned device, const uint64_t *numbers, size_t count);

#endif
