#include "policy/steps/pattern.h"

#include <string.h>

/* Returns whether the gram that ends with launch `launch` precedes `position` in the pattern. */
static bool gram_fits(const struct ps_step_pattern *pattern, uint32_t position, const uint64_t *history,
                      uint64_t launch)
{
    for (uint64_t i = 0; i < PS_GRAM; i++) {
        position = position == 0 ? pattern->length - 1 : position - 1;
        if (pattern->fingerprint[position] != history[(launch - i) % PS_RING])
            return false;
    }
    return true;
}

uint32_t ps_step_pattern_find(const struct ps_step_pattern *pattern, uint64_t gram, const uint64_t *history,
                              uint64_t launch)
{
    for (uint64_t i = gram; pattern->index[i & pattern->index_mask] != 0; i++) {
        uint32_t entry = pattern->index[i & pattern->index_mask];
        if (gram_fits(pattern, (entry & ~PS_AMBIGUOUS) - 1, history, launch))
            return entry - 1;
    }
    return PS_NOWHERE;
}

static bool same_pattern_gram(const struct ps_step_pattern *pattern, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < PS_GRAM; i++) {
        a = a == 0 ? pattern->length - 1 : a - 1;
        b = b == 0 ? pattern->length - 1 : b - 1;
        if (pattern->fingerprint[a] != pattern->fingerprint[b])
            return false;
    }
    return true;
}

/* Returns the hash of the gram before `position`. A pattern is a ring. */
static uint64_t pattern_gram(const struct ps_step_pattern *pattern, uint32_t position)
{
    uint64_t hash = 0;
    uint32_t length = pattern->length;

    position = (position + length - PS_GRAM % length) % length;
    for (int i = 0; i < PS_GRAM; i++) {
        hash = ps_pattern_append(hash, pattern->fingerprint[position]);
        position = position + 1 == length ? 0 : position + 1;
    }
    return ps_hash_u64(hash);
}

void ps_step_pattern_index(struct ps_step_pattern *pattern)
{
    uint32_t size = 16;

    while (size < 2 * pattern->length)
        size *= 2;
    pattern->index_mask = size - 1;
    memset(pattern->index, 0, size * sizeof *pattern->index);
    for (uint32_t position = 0; position < pattern->length; position++) {
        uint64_t i = pattern_gram(pattern, position);
        uint32_t *entry = &pattern->index[i & pattern->index_mask];
        while (*entry != 0 && !same_pattern_gram(pattern, (*entry & ~PS_AMBIGUOUS) - 1, position))
            entry = &pattern->index[++i & pattern->index_mask];
        *entry = *entry == 0 ? position + 1 : *entry | PS_AMBIGUOUS;
    }
}

bool ps_step_pattern_contains(const struct ps_step_pattern *longer, const struct ps_step_pattern *shorter)
{
    uint32_t missing = 0;

    for (uint32_t position = 0; position < shorter->length && missing <= PS_GRAM; position++) {
        uint64_t i = pattern_gram(shorter, position);
        uint32_t entry;
        while ((entry = longer->index[i & longer->index_mask]) != 0) {
            uint32_t a = (entry & ~PS_AMBIGUOUS) - 1, b = position, n = 0;
            while (n < PS_GRAM) {
                a = a == 0 ? longer->length - 1 : a - 1;
                b = b == 0 ? shorter->length - 1 : b - 1;
                if (longer->fingerprint[a] != shorter->fingerprint[b])
                    break;
                n++;
            }
            if (n == PS_GRAM)
                break;
            i++;
        }
        missing += entry == 0;
    }
    return missing <= PS_GRAM && missing < shorter->length;
}
