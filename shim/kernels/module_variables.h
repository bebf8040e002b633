/*
 * Variables of modules (__device__, __constant__) whose place the program or its runtime has asked
 * for. A kernel reads such a variable without being given its address. So a pointer table in one is
 * used by kernels whose parameters lead to no table (pointer_tables.h).
 *
 * A variable is known from the look-up of its place on. No copy can reach it before. It is
 * forgotten with its module, with its library, or with its context. With PENSTOCK_TRACER=cupti the
 * runtime's look-ups are seen through CUPTI alone, from the start of tracing on. Any thread; a leaf
 * lock.
 */
#ifndef PS_MODULE_VARIABLES_H
#define PS_MODULE_VARIABLES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* A library and its module have handles of their own. Either may look a variable up. */
enum ps_variable_holder {
    PS_VARIABLE_OF_MODULE,
    PS_VARIABLE_OF_LIBRARY,
    PS_VARIABLE_HOLDERS,
};

/*
 * The module or library has a variable there. One that is known is only noted once, with both of
 * its holders. Asks the driver for the context of the place. Inside Penstock.
 */
void ps_module_variables_found(enum ps_variable_holder kind, const void *holder, CUdeviceptr start, size_t bytes);

/* Returns whether the range reaches into a known variable. */
bool ps_module_variables_touch(CUdeviceptr start, size_t bytes);

/* The module or library is unloaded: its variables, and the tables in them, are forgotten. */
void ps_module_variables_gone(const void *holder);

/* The same for all variables in a context that ends. */
void ps_module_variables_context_ends(CUcontext context);

#endif
