/*
 * The data of `penstock top`: the live pages of this user's processes (shim/base/live_page.h), read
 * again at each look. For one thread.
 */
#ifndef PENSTOCK_TOP_PAGES_H
#define PENSTOCK_TOP_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/live_page.h"

struct top_process {
    uint64_t pid;
    uint32_t other_version; /* of the page, if this command can't read it: then only the pid is known. Otherwise 0 */
    bool told;              /* the process has written its figures; otherwise only the header is known */
    struct ps_live_header header;
    struct ps_live_process now;
    struct ps_live_device device[PS_LIVE_DEVICES_MAX];
};

struct top_pages {
    struct top_process *process; /* by pid; top_look allocates it, and it lives as long as the program */
    size_t count, room;
    unsigned looks;     /* so far */
    unsigned elsewhere; /* pages of other pid namespaces */
    const pid_t *only;  /* the processes to look for; all if `only_count` is 0 */
    size_t only_count;
};

/* Reads all pages again. Removes pages of processes that have ended. */
void top_look(struct top_pages *pages);

/* Writes the processes as JSON on standard output. Returns 0 or -errno. */
int top_write_json(const struct top_pages *pages);

/* The word for an enum ps_live_state; NULL if it is not one. */
const char *top_state_name(uint64_t state);

/* Prints why nothing is known of that process. Returns 1. */
int top_say_why_not(pid_t pid);

/* Prints a line on stderr, as the command does. Returns `status`. */
__attribute__((format(printf, 2, 3))) int top_say(int status, const char *format, ...);

#endif
