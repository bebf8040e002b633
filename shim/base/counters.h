/*
 * What Penstock counts, for the closing line and the report. Each is a plain relaxed atomic: exact, in no order with the others.
 */
#ifndef PS_COUNTERS_H
#define PS_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* PS_COUNTER(name): events, bytes or ns as the name says; monotonic. */
#define PS_COUNTER_TABLE                                                                                                                   \
    PS_COUNTER(allocations)       /* spans and blocks handed out */                                                                        \
    PS_COUNTER(frees)             /* spans and blocks freed */                                                                             \
    PS_COUNTER(larger_reused)     /* of the allocations, those that a larger freed span serves */                                          \
    PS_COUNTER(blocks)            /* of the allocations, those that were made in pieces */                                                 \
    PS_COUNTER(mapped_by_program) /* of the allocations, those that the program made by cuMemCreate */                                     \
    PS_COUNTER(evictions)         /* D2H copies that ended in the span leaving the device */                                               \
    PS_COUNTER(evicted_bytes)                                                                                                              \
    PS_COUNTER(evictions_cancelled) /* accessed while the D2H was under way: the pages stayed */                                           \
    PS_COUNTER(eviction_errors)     /* an eviction that the driver refused; the span stayed */                                             \
    PS_COUNTER(reloads)                                                                                                                    \
    PS_COUNTER(reloaded_bytes)                                                                                                             \
    PS_COUNTER(demand_reloads) /* reloads begun by the access itself */                                                                    \
    PS_COUNTER(early_reloads)  /* reloads begun without a plan, as memory was free again */                                                \
    PS_COUNTER(reload_errors)                                                                                                              \
    PS_COUNTER(accesses_on_slot)        /* accesses to a span left on its slot: right, and slow */                                         \
    PS_COUNTER(stand_ins)               /* times that device pages stood in for a slot while the driver looked (standing_in.h) */          \
    PS_COUNTER(spans_born_on_slot)      /* allocations that no device pages could be had for */                                            \
    PS_COUNTER(host_wait_ns)            /* time in which a thread of the program waited for pages */                                       \
    PS_COUNTER(launches)                /* kernel launches seen */                                                                         \
    PS_COUNTER(launches_without_layout) /* of them, those whose parameters could not be read */                                            \
    PS_COUNTER(list_launches)  /* of them, those of torch's kernels for lists of tensors, by what they use (torch_tensor_lists.h) */       \
    PS_COUNTER(graph_launches) /* launches of executable graphs */                                                                         \
    PS_COUNTER(graph_launches_unknown)   /* of these: what the graph touches could not be read */                                          \
    PS_COUNTER(copies_seen)              /* copies and memsets seen */                                                                     \
    PS_COUNTER(pointer_tables)           /* copies to the device that held addresses of spans */                                           \
    PS_COUNTER(made_tables)              /* kernel launches that made a table of addresses, by a kernel that is known to */                \
    PS_COUNTER(looked_through_bytes)     /* of small memory, copied to the host to find the kernels that make tables */                    \
    PS_COUNTER(pointer_tables_forgotten) /* of them, those that there was no room for any more */                                          \
    PS_COUNTER(nccl_calls)               /* calls of NCCL's that named a span */                                                           \
    PS_COUNTER(nccl_registrations)       /* buffers in spans that were given to NCCL to keep */                                            \
    PS_COUNTER(layouts_from_cubin)       /* kernels whose layout came from .nv.info */                                                     \
    PS_COUNTER(layouts_from_driver)      /* kernels whose layout came from the driver */                                                   \
    PS_COUNTER(layouts_compared)         /* kernels for which both were there */                                                           \
    PS_COUNTER(layout_disagreements)     /* of them, those that differed; the driver's was used */                                         \
    PS_COUNTER(pages_refused)            /* times the driver had no device pages although the budget had room */                           \
    PS_COUNTER(pages_reused_bytes)       /* of device pages that had been another span's */                                                \
    PS_COUNTER(pages_given_back_bytes)   /* of those that were given back to the driver */                                                 \
    PS_COUNTER(out_of_memory)            /* allocations that failed */                                                                     \
    PS_COUNTER(bad_frees)                /* unknown or interior pointers, double frees */                                                  \
    PS_COUNTER(small_kept)               /* blocks too small for a span that were kept when the program freed them */                      \
    PS_COUNTER(small_reused)             /* of these, those that served a later request */                                                 \
    PS_COUNTER(small_given_back)         /* and those that were given back to the driver */                                                \
    PS_COUNTER(small_lost)               /* of those, what it would not have */                                                            \
    PS_COUNTER(user_pins)                /* spans that the program pinned */                                                               \
    PS_COUNTER(idle_hints)               /* spans that the program said to be idle */                                                      \
    PS_COUNTER(trace_events)             /* what PENSTOCK_TRACE's file was told of */                                                      \
    PS_COUNTER(trace_events_dropped)     /* and what came when its ring was full */

struct ps_counters {
#define PS_COUNTER(name) _Atomic uint64_t name;
    PS_COUNTER_TABLE
#undef PS_COUNTER
};

extern struct ps_counters ps_counters;

#define ps_count(name) ps_count_by(name, 1)
#define ps_count_by(name, n) atomic_fetch_add_explicit(&ps_counters.name, (n), memory_order_relaxed)
#define ps_counted(name) atomic_load_explicit(&ps_counters.name, memory_order_relaxed)

/* Why an allocation went to the real allocator. */
#define PS_PASSTHROUGH_TABLE                                                                                                               \
    PS_PASSTHROUGH(small, "smaller than PENSTOCK_MIN_SPAN")                                                                                \
    PS_PASSTHROUGH(disabled, "Penstock stepped aside")                                                                                     \
    PS_PASSTHROUGH(other_device, "in a context that is not managed: a second one of a device, or of a device that can't be")               \
    PS_PASSTHROUGH(capture, "made while a stream is being captured")                                                                       \
    PS_PASSTHROUGH(plain, "left to CUDA by PENSTOCK_RULES")                                                                                \
    PS_PASSTHROUGH(own_pool, "from a memory pool that the program made")                                                                   \
    PS_PASSTHROUGH(mapped, "mapped by the program in a way that spans can't be")                                                           \
    PS_PASSTHROUGH(no_addresses, "no addresses or no memory for bookkeeping")

struct ps_passthrough {
#define PS_PASSTHROUGH(name, text) _Atomic uint64_t name;
    PS_PASSTHROUGH_TABLE
#undef PS_PASSTHROUGH
};

extern struct ps_passthrough ps_passthrough;

#define ps_count_passthrough(reason) atomic_fetch_add_explicit(&ps_passthrough.reason, 1, memory_order_relaxed)

#endif
