#include "report_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "live.h"
#include "log.h"
#include "process.h"

static atomic_bool taken;

/* Nothing but a word: the thread that the signal interrupts goes on at once, and another one writes. */
static void on_signal(int number)
{
    int saved = errno;

    (void)number;
    ps_live_want_report();
    errno = saved;
}

static bool is_ours(void)
{
    struct sigaction now;

    return !sigaction(ps_settings.signal, NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal;
}

void ps_report_signal_open(void)
{
    struct sigaction theirs, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const char *name = ps_signal_name(ps_settings.signal);

    if (!ps_settings.signal)
        return;
    if (!*ps_settings.report) {
        ps_log_warn(REPORT, "PENSTOCK_SIGNAL=%s: PENSTOCK_REPORT names no file to write; the signal is left alone: set both", name);
        return;
    }
    if (sigaction(ps_settings.signal, NULL, &theirs) || (theirs.sa_flags & SA_SIGINFO) || theirs.sa_handler != SIG_DFL) {
        ps_log_warn(
            REPORT,
            "PENSTOCK_SIGNAL=%s: the program handles or ignores this signal itself; that stays, and no report is written for it; take another one",
            name);
        return;
    }
    sigemptyset(&ours.sa_mask);
    atomic_store(&taken, !sigaction(ps_settings.signal, &ours, NULL));
}

bool ps_report_signal_is_on(void)
{
    return atomic_load(&taken);
}

void ps_report_signal_check(void)
{
    if (!atomic_load(&taken) || is_ours())
        return;
    atomic_store(&taken, false);
    ps_log_warn(REPORT,
                "PENSTOCK_SIGNAL=%s: the program has taken this signal for itself; no report is written for it any more; take another one",
                ps_signal_name(ps_settings.signal));
}

void ps_report_signal_forget(void)
{
    if (atomic_load(&taken) && is_ours())
        signal(ps_settings.signal, SIG_DFL);
    atomic_store(&taken, false);
}
