/*
 * The counters of Penstock, for the closing line and the report. Each is a relaxed atomic: its
 * value is exact, and it has no order with the others.
 */
#ifndef PS_COUNTERS_H
#define PS_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* PS_COUNTER(name) counts events, bytes or ns, as its name says. A counter never shrinks. */
#define PS_COUNTER_TABLE                                                                                               \
    PS_COUNTER(allocations)       /* spans and blocks handed out */                                                    \
    PS_COUNTER(frees)             /* spans and blocks freed */                                                         \
    PS_COUNTER(larger_reused)     /* allocations served by a larger freed span */                                      \
    PS_COUNTER(blocks)            /* allocations made in pieces */                                                     \
    PS_COUNTER(mapped_by_program) /* allocations that the program made by cuMemCreate */                               \
    PS_COUNTER(evictions)         /* D2H copies after which the span left the device */                                \
    PS_COUNTER(evicted_bytes)                                                                                          \
    PS_COUNTER(evictions_cancelled) /* evictions that an access cancelled during the D2H; the pages stayed */          \
    PS_COUNTER(eviction_errors)     /* evictions that the driver refused; the span stayed */                           \
    PS_COUNTER(reloads)                                                                                                \
    PS_COUNTER(reloaded_bytes)                                                                                         \
    PS_COUNTER(demand_reloads) /* reloads begun by the access itself */                                                \
    PS_COUNTER(early_reloads)  /* reloads begun without a plan, as memory was free again */                            \
    PS_COUNTER(reload_errors)                                                                                          \
    PS_COUNTER(accesses_on_slot)         /* accesses to a span left on its slot: correct, but slow */                  \
    PS_COUNTER(stand_ins)                /* uses of device pages in place of a slot (standing_in.h) */                 \
    PS_COUNTER(spans_born_on_slot)       /* allocations that began on a slot for lack of device pages */               \
    PS_COUNTER(host_wait_ns)             /* time in which threads, helper threads too, waited for pages */             \
    PS_COUNTER(launches)                 /* kernel launches seen */                                                    \
    PS_COUNTER(launches_without_layout)  /* launches whose parameters could not be read */                             \
    PS_COUNTER(list_launches)            /* launches whose tensor lists were read (torch_tensor_lists.h) */            \
    PS_COUNTER(graph_launches)           /* launches of executable graphs */                                           \
    PS_COUNTER(graph_launches_unknown)   /* graph launches whose accesses could not be read */                         \
    PS_COUNTER(copies_seen)              /* copies and fills seen */                                                   \
    PS_COUNTER(pointer_tables)           /* copies to the device that held addresses of spans */                       \
    PS_COUNTER(made_tables)              /* launches of a known maker that made a pointer table */                     \
    PS_COUNTER(looked_through_bytes)     /* bytes of small memory copied to the host to find makers */                 \
    PS_COUNTER(pointer_tables_forgotten) /* pointer tables dropped for lack of room */                                 \
    PS_COUNTER(nccl_calls)               /* NCCL calls that named a span */                                            \
    PS_COUNTER(nccl_registrations)       /* buffers in spans that were registered with NCCL */                         \
    PS_COUNTER(cubins_read)              /* cubins that were loaded, each time */                                      \
    PS_COUNTER(cubins_unread)            /* those that could not be read: no kernel is proved then */                  \
    PS_COUNTER(layouts_from_cubin)       /* kernels whose layout came from .nv.info */                                 \
    PS_COUNTER(layouts_from_driver)      /* kernels whose layout came from the driver */                               \
    PS_COUNTER(layouts_compared)         /* kernels with a layout from each */                                         \
    PS_COUNTER(layout_disagreements)     /* kernels whose two layouts differed; the driver's was used */               \
    PS_COUNTER(pages_refused)            /* times the driver had no device pages although the budget had room */       \
    PS_COUNTER(pages_reused_bytes)       /* bytes of device pages that had been another span's */                      \
    PS_COUNTER(pages_given_back_bytes)   /* bytes of device pages given back to the driver */                          \
    PS_COUNTER(out_of_memory)            /* allocations that failed */                                                 \
    PS_COUNTER(bad_frees)                /* unknown or interior pointers, double frees */                              \
    PS_COUNTER(small_kept)               /* allocations too small for a span, kept when freed */                       \
    PS_COUNTER(small_reused)             /* kept small blocks that served a later request */                           \
    PS_COUNTER(small_given_back)         /* kept small blocks given back to the driver */                              \
    PS_COUNTER(small_lost)               /* given-back small blocks that the driver refused */                         \
    PS_COUNTER(user_pins)                /* spans that the program pinned */                                           \
    PS_COUNTER(idle_hints)               /* spans that the program declared idle */                                    \
    PS_COUNTER(trace_events)             /* events put into the trace for PENSTOCK_TRACE's file */                     \
    PS_COUNTER(trace_events_dropped)     /* events lost because the ring of the trace was full */

struct ps_counters {
#define PS_COUNTER(name) _Atomic uint64_t name;
    PS_COUNTER_TABLE
#undef PS_COUNTER
};

extern struct ps_counters ps_counters;

#define ps_count(name) ps_count_by(name, 1)
#define ps_count_by(name, n) atomic_fetch_add_explicit(&ps_counters.name, (n), memory_order_relaxed)
#define ps_counted(name) atomic_load_explicit(&ps_counters.name, memory_order_relaxed)

/* PS_PASSTHROUGH(name, text) is a reason for which an allocation went to the real allocator. */
#define PS_PASSTHROUGH_TABLE                                                                                           \
    PS_PASSTHROUGH(small, "smaller than PENSTOCK_MIN_SPAN")                                                            \
    PS_PASSTHROUGH(disabled, "Penstock stood aside")                                                                   \
    PS_PASSTHROUGH(                                                                                                    \
        other_device,                                                                                                  \
        "in a context that is not managed: a second one of a device, or one of a device that can't be managed")        \
    PS_PASSTHROUGH(capture, "made while a stream is being captured")                                                   \
    PS_PASSTHROUGH(plain, "left to CUDA by PENSTOCK_RULES")                                                            \
    PS_PASSTHROUGH(own_pool, "from a memory pool that the program made")                                               \
    PS_PASSTHROUGH(mapped, "mapped by the program in a way that Penstock does not support")                            \
    PS_PASSTHROUGH(no_addresses, "no addresses or no memory for bookkeeping")

struct ps_passthrough {
#define PS_PASSTHROUGH(name, text) _Atomic uint64_t name;
    PS_PASSTHROUGH_TABLE
#undef PS_PASSTHROUGH
};

extern struct ps_passthrough ps_passthrough;

#define ps_count_passthrough(reason) atomic_fetch_add_explicit(&ps_passthrough.reason, 1, memory_order_relaxed)

#endif
