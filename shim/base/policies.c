#include "base/policies.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/real_dlsym.h"

static const struct penstock_policy *current = &penstock_policy_plan;
static struct penstock_policy_options options;
static const struct ps_span_rules *rules; /* NULL: none */

/* Returns the reason why the policy can't be used, or NULL. */
static const char *objection(const struct penstock_policy *policy)
{
    if (!policy)
        return "its penstock_policy() returns NULL";
    if (policy->version != PENSTOCK_POLICY_VERSION)
        return "it was compiled for another version of penstock/policy.h";
    if (!policy->name)
        return "it has no name";
    if (policy->plan && !policy->workspace_bytes)
        return "it has a plan function but no workspace_bytes";
    return NULL;
}

/*
 * Returns the policy in the file. Returns NULL, after a message, if it can't be used. The library
 * stays open as long as the process lives.
 */
static const struct penstock_policy *open_file(const char *path)
{
    const struct penstock_policy *(*get)(void);
    const struct penstock_policy *policy = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();

    if (library) {
        *(void **)&get = ps_real_dlsym(library, "penstock_policy");
        if (!get) {
            why = "it does not export penstock_policy";
        } else {
            policy = get();
            why = objection(policy);
        }
    }
    if (!why)
        return policy;
    ps_log_warn(SETTINGS,
                "PENSTOCK_POLICY=%s: %s; the default policy, plan, is used instead; "
                "correct the library as include/penstock/policy.h describes",
                path, why);
    if (library)
        dlclose(library);
    return NULL;
}

void ps_policies_open(const struct ps_settings *settings)
{
    const struct penstock_policy *chosen = NULL;

    switch (settings->policy.kind) {
    case PS_POLICY_PLAN:
        chosen = &penstock_policy_plan;
        break;
    case PS_POLICY_LAYERS:
        chosen = &penstock_policy_layers;
        break;
    case PS_POLICY_LRU:
        chosen = &penstock_policy_lru;
        break;
    case PS_POLICY_FILE:
        chosen = open_file(settings->policy.path);
        break;
    }
    current = chosen ? chosen : &penstock_policy_plan;
    options = (struct penstock_policy_options){.prefetch_layers = settings->prefetch_layers,
                                               .defer_layers = settings->defer_layers,
                                               .keep_last = settings->keep_last};
    rules = settings->rules.count ? &settings->rules : NULL;
    ps_log_info(SETTINGS, "the policy is %s", current->name);
}

const struct penstock_policy *ps_policies_current(void)
{
    return current;
}

const struct penstock_policy_options *ps_policies_options(void)
{
    return &options;
}

/*
 * Returns whether the k entries of `chosen` are indices below n that cover the need, or all
 * candidates.
 */
static bool covers(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, const size_t *chosen,
                   size_t k)
{
    uint64_t all = 0, taken = 0;

    if (k > n)
        return false;
    for (size_t i = 0; i < n; i++)
        all += candidates[i].bytes;
    for (size_t i = 0; i < k; i++) {
        if (chosen[i] >= n)
            return false;
        taken += candidates[chosen[i]].bytes;
    }
    return taken >= (need_bytes < all ? need_bytes : all);
}

size_t ps_policies_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen)
{
    if (current->choose && current->choose != penstock_lru_choose) {
        size_t k = current->choose(candidates, n, need_bytes, chosen);
        if (covers(candidates, n, need_bytes, chosen, k))
            return k;
        ps_log_warn_once(SETTINGS,
                         "the policy %s chose %zu of %zu spans, which is not enough; the least recently "
                         "used are evicted instead: `choose` must cover the bytes asked for",
                         current->name, k, n);
    }
    return penstock_lru_choose(candidates, n, need_bytes, chosen);
}

bool ps_policies_may_move(const struct ps_span_facts *facts)
{
    return !rules || ps_span_rules_allow(rules, facts);
}

bool ps_policies_want_nth(void)
{
    return rules && ps_span_rules_want_nth(rules);
}

bool ps_policies_leave_to_cuda(size_t bytes)
{
    return rules && ps_span_rules_plain(rules, bytes);
}

bool ps_policies_want_pieces(size_t bytes)
{
    return rules && ps_span_rules_pieces(rules, bytes);
}
