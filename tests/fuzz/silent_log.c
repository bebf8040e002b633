/* A log that prints nothing, for targets that don't test the log. */
#include "base/log.h"

bool ps_log_enabled(enum ps_log_module module, enum ps_log_level level)
{
    (void)module;
    (void)level;
    return false;
}

void ps_log_write(enum ps_log_module module, enum ps_log_level level, const char *format, ...)
{
    (void)module;
    (void)level;
    (void)format;
}
