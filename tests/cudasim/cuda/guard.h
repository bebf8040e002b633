/*
 * Catches accesses of the simulated device to addresses that nothing is mapped to. A kernel or copy
 * runs under a guard; a SIGSEGV or SIGBUS inside a simulated address range ends it and is reported
 * as the device would report it. Any other signal goes to the handler that was there before.
 */
#ifndef CUDASIM_GUARD_H
#define CUDASIM_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Installs the handlers, once. Thread-safe. */
void cudasim_guard_install(void);
/*
 * Makes [base, base + size) a simulated range / no longer one. Under the device lock. False when
 * the table is full.
 */
bool cudasim_guard_add_range(uintptr_t base, size_t size);
void cudasim_guard_remove_range(uintptr_t base);
/* Whether the address lies in a simulated range. No lock needed. */
bool cudasim_guard_covers(uintptr_t address);

/*
 * Calls work(argument). True when it came back by itself; false when it was ended by a fault, whose
 * address is then stored.
 */
bool cudasim_guarded(void (*work)(void *argument), void *argument, uintptr_t *fault_address);

#endif
