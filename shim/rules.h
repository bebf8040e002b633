/* Ordering rules as switches for the tests; see rules.def. ps_rule(NAME) is a constant 1 outside a PS_MUTANTS build. */
#ifndef PS_RULES_H
#define PS_RULES_H

enum ps_rule_name {
#define PS_RULE(name, text) PS_RULE_##name,
#include "rules.def"
#undef PS_RULE
    PS_RULE_COUNT
};

#ifdef PS_MUTANTS
int ps_rule_is_on(enum ps_rule_name rule);
void ps_rule_widen_window(void); /* gives another thread time to show what the dropped rule lets through */
#define ps_rule(name) ps_rule_is_on(PS_RULE_##name)
#else
#define ps_rule(name) 1
#define ps_rule_widen_window()
#endif

#endif
