/*
 * Whether a program's command says that it will ask torch for what its own allocator alone can do: its arguments, the Python files and the configurations that
 * they name. In a constructor, before torch is loaded, of a Python's process; opens and reads those files, and nothing else.
 */
#ifndef PS_TORCH_SETTINGS_H
#define PS_TORCH_SETTINGS_H

#include <stdbool.h>

struct ps_torch_settings {
    const char *what; /* in words, with where it stands in front; NULL: nothing was found */
    char where[256];  /* the argument, or the file */
};

/* `count` arguments, the program's name first. What is found first is what is told. */
bool ps_torch_settings_own_allocator(int count, char *const *arguments, struct ps_torch_settings *needs);

#endif
