/*
 * Whether a program's command says that it will ask torch for something that only its own allocator
 * can do. Reads the arguments, and the Python files and configurations that they name. Runs in a
 * constructor of a Python process, before torch is loaded. Opens and reads those files, and does
 * nothing else.
 */
#ifndef PS_TORCH_SETTINGS_H
#define PS_TORCH_SETTINGS_H

#include <stdbool.h>

struct ps_torch_settings {
    const char *what; /* in words, to be read after `where`; NULL: nothing was found */
    char where[256];  /* the argument, or the file */
};

/*
 * Reads `count` arguments, of which the first is the program's name. Reports the first need that it
 * finds.
 */
bool ps_torch_settings_own_allocator(int count, char *const *arguments, struct ps_torch_settings *needs);

#endif
