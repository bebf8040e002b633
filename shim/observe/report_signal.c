#include "observe/report_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/secure_execution.h"
#include "base/settings.h"
#include "observe/live.h"

static atomic_bool taken;

/* Only wakes another thread, which writes the report. The interrupted thread goes on at once. */
static void on_signal(int number)
{
    int saved = errno;

    (void)number;
    ps_live_want_report();
    errno = saved;
}

static bool is_at(int signal_number, void (*handler)(int))
{
    struct sigaction now;

    return !sigaction(signal_number, NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == handler;
}

/* Handles the signal if the program does not. Returns whether the handler is ours then. */
static bool take(int signal_number)
{
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigemptyset(&ours.sa_mask);
    if (is_at(signal_number, SIG_DFL))
        sigaction(signal_number, &ours, NULL);
    return is_at(signal_number, on_signal);
}

/*
 * The signal's default action would end the program before its first CUDA call. The same holds for
 * each program that it starts.
 */
__attribute__((constructor)) static void take_at_load(void)
{
    const char *name = getenv("PENSTOCK_SIGNAL"), *file = getenv("PENSTOCK_REPORT");
    int number = name ? ps_signal_number(name) : 0;

    if (number && file && *file && !ps_is_secure_execution())
        take(number);
}

void ps_report_signal_open(void)
{
    const char *name = ps_signal_name(ps_settings.signal);

    if (!ps_settings.signal)
        return;
    if (!*ps_settings.report) {
        ps_log_warn(REPORT,
                    "PENSTOCK_SIGNAL=%s: PENSTOCK_REPORT names no file, so the signal writes no report; set both",
                    name);
        return;
    }
    if (!take(ps_settings.signal)) {
        ps_log_warn(
            REPORT,
            "PENSTOCK_SIGNAL=%s: the program handles or ignores this signal itself, so no report is written on it; choose another signal",
            name);
        return;
    }
    atomic_store(&taken, true);
}

bool ps_report_signal_is_on(void)
{
    return atomic_load(&taken);
}

void ps_report_signal_check(void)
{
    if (!atomic_load(&taken) || is_at(ps_settings.signal, on_signal))
        return;
    atomic_store(&taken, false);
    ps_log_warn(REPORT,
                "PENSTOCK_SIGNAL=%s: the program now handles or ignores this signal "
                "itself, so no more reports are written on it; choose another signal",
                ps_signal_name(ps_settings.signal));
}
