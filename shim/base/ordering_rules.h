/*
 * Ordering rules as switches for the tests; see ordering_rules.def. ps_ordering_rule(NAME) is a
 * constant 1 outside a PS_MUTANTS build.
 */
#ifndef PS_ORDERING_RULES_H
#define PS_ORDERING_RULES_H

enum ps_ordering_rule_name {
#define PS_ORDERING_RULE(name, text) PS_ORDERING_RULE_##name,
#include "base/ordering_rules.def"
#undef PS_ORDERING_RULE
    PS_ORDERING_RULE_COUNT
};

#ifdef PS_MUTANTS
int ps_ordering_rule_is_on(enum ps_ordering_rule_name rule);
/* Gives another thread time to show the mistake that the dropped rule lets through. */
void ps_ordering_rule_widen_window(void);
#define ps_ordering_rule(name) ps_ordering_rule_is_on(PS_ORDERING_RULE_##name)
#else
#define ps_ordering_rule(name) 1
#define ps_ordering_rule_widen_window()
#endif

#endif
