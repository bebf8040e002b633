/*
 * Catches accesses of the simulated device to addresses without a mapping. A kernel or copy runs
 * under a guard. A SIGSEGV or SIGBUS inside a simulated address range ends it, and is reported as
 * the device would. Pages that are closed to the processor are opened for it instead
 * (closed_pages.h). Any other signal goes to the handler that was there before.
 */
#ifndef CUDASIM_GUARD_H
#define CUDASIM_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Installs the handlers, once. Thread-safe. */
void cudasim_guard_install(void);
/*
 * Adds [base, base + size) to the simulated ranges, or removes it. Under the device lock. Adding
 * returns false when the table is full.
 */
bool cudasim_guard_add_range(uintptr_t base, size_t size);
void cudasim_guard_remove_range(uintptr_t base);
/* Returns whether the address lies in a simulated range. No lock needed. */
bool cudasim_guard_covers(uintptr_t address);

/*
 * Calls work(argument). Returns true when it returned by itself. Returns false when a fault ended
 * it, and stores the address of the fault.
 */
bool cudasim_guarded(void (*work)(void *argument), void *argument, uintptr_t *fault_address);

#endif
