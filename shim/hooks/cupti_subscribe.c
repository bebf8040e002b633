#include "hooks/cupti_subscribe.h"

#include <cupti.h>
#include <stdatomic.h>
#include <string.h>

#include "cuda/helper_thread.h"
#include "hooks/hooks.h"
#include "hooks/symbol_lookup.h"
#include "tracer/start.h"

typedef __typeof__(cuptiSubscribe) subscribe_function;
typedef __typeof__(cuptiSubscribe_v2) subscribe_v2_function;

/* The real functions that the last look-up of each name found. */
static void *_Atomic looked_up;
static void *_Atomic looked_up_v2;

void *ps_cupti_stand_in(const char *name, void *found)
{
    bool is_first = !strcmp(name, "cuptiSubscribe");

    if (ps_inside || (!is_first && strcmp(name, "cuptiSubscribe_v2")))
        return found;
    atomic_store(is_first ? &looked_up : &looked_up_v2, found);
    return is_first ? (void *)(subscribe_function *)cuptiSubscribe : (void *)(subscribe_v2_function *)cuptiSubscribe_v2;
}

static bool may_ask_again(CUptiResult result)
{
    if (result != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED || ps_inside)
        return false;
    ps_inside++;
    bool left = ps_tracing_leave_cupti();
    ps_inside--;
    return left;
}

PS_EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                              void *userdata)
{
    subscribe_function *real =
        (subscribe_function *)ps_symbol_behind("cuptiSubscribe", atomic_load(&looked_up), __builtin_return_address(0));
    CUptiResult result = real ? real(subscriber, callback, userdata) : CUPTI_ERROR_NOT_INITIALIZED;

    return may_ask_again(result) ? real(subscriber, callback, userdata) : result;
}

PS_EXPORT CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                                 void *userdata, CUpti_SubscriberParams *parameters)
{
    subscribe_v2_function *real = (subscribe_v2_function *)ps_symbol_behind(
        "cuptiSubscribe_v2", atomic_load(&looked_up_v2), __builtin_return_address(0));
    CUptiResult result = real ? real(subscriber, callback, userdata, parameters) : CUPTI_ERROR_NOT_INITIALIZED;

    return may_ask_again(result) ? real(subscriber, callback, userdata, parameters) : result;
}
