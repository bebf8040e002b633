#include "base/ordering_rules.h"

#ifdef PS_MUTANTS
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
#define PS_ORDERING_RULE(name, text) #name,
#include "base/ordering_rules.def"
#undef PS_ORDERING_RULE
};

static int dropped = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    const char *name = getenv("PENSTOCK_TEST_DROP_RULE");

    for (int i = 0; name && i < PS_ORDERING_RULE_COUNT; i++)
        if (!strcmp(name, names[i]))
            dropped = i;
}

int ps_ordering_rule_is_on(enum ps_ordering_rule_name rule)
{
    pthread_once(&once, read_environment);
    return (int)rule != dropped;
}

void ps_ordering_rule_widen_window(void)
{
    usleep(300);
}
#else
typedef int ps_rules_are_constant; /* a translation unit needs a declaration */
#endif
