/*
 * The time that a call takes on the thread that makes it (CUDASIM_CALL_NS). On a GPU, a record of
 * an event or a query takes microseconds of the caller's time. A loop of such calls then shows.
 */
#include "costs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "engine.h"
#include "entries.h"
#include "faults.h"

/* A shorter time is spent on the processor, because a sleep takes 50 us longer than asked for. */
#define SLEEP_FROM_NS 200000u

static uint64_t costs[CUDASIM_CALL_COUNT];
static bool some_cost;
static pthread_once_t parse_once = PTHREAD_ONCE_INIT;

/* Sets the cost of every call of that name, or with `others` of all calls that have none yet. */
static bool set_cost(const char *call, bool others, uint64_t ns)
{
    bool known = false;

    for (unsigned int entry = 0; entry < CUDASIM_CALL_COUNT; entry++)
        if (others ? !costs[entry] : cudasim_call_is(call, cudasim_entry_name(entry))) {
            costs[entry] = ns;
            known = true;
        }
    return known;
}

static void parse_item(const char *item, bool others)
{
    char call[64] = "", more[2] = "";
    unsigned long long ns = 0;

    if (sscanf(item, "%63[^:]:%llu%1s", call, &ns, more) != 2) {
        if (others)
            fprintf(stderr, "cudasim: CUDASIM_CALL_NS: '%s' is not call:nanoseconds\n", item);
        return;
    }
    if (others == !strcmp(call, "others") && !set_cost(call, others, ns))
        fprintf(stderr, "cudasim: CUDASIM_CALL_NS: '%s' is no call\n", call);
    some_cost |= ns != 0;
}

/* Calls that are named come first; `others` means the rest. */
static void parse_costs(void)
{
    for (int others = 0; others < 2; others++) {
        char *list = strdup(cudasim_config()->costs), *rest = NULL;

        for (char *item = list ? strtok_r(list, ",", &rest) : NULL; item; item = strtok_r(NULL, ",", &rest))
            parse_item(item, others);
        free(list);
    }
}

void cudasim_call_takes_time(unsigned int entry)
{
    pthread_once(&parse_once, parse_costs);
    if (!some_cost || !costs[entry])
        return;
    const uint64_t until = cudasim_now_ns() + costs[entry];
    for (uint64_t now = cudasim_now_ns(); now < until; now = cudasim_now_ns())
        if (until - now >= SLEEP_FROM_NS)
            nanosleep(&(struct timespec){.tv_sec = (time_t)((until - now) / 1000000000u),
                                         .tv_nsec = (long)((until - now) % 1000000000u)},
                      NULL);
}
