/*
 * penstock-top: a table of the processes that run under Penstock, with a line for each device of
 * each process. It is updated in place until q is typed. Takes the arguments of `penstock top`.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/json.h"
#include "top_table.h"

static bool show(struct top_picture *p)
{
    int fd = STDOUT_FILENO;
    bool shown = !ps_json_sink_fd(p->text, p->used, &fd);

    p->used = 0;
    return shown;
}

/* ---- the terminal ---- */

static struct termios before;
static bool has_keys;
static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    if (number != SIGWINCH)
        caught = number;
}

/*
 * Switches to the alternate screen, without cursor and line wrap. Keys are read one by one and not
 * echoed.
 */
static void take_terminal(void)
{
    static const char enter[] = "\033[?1049h\033[?25l\033[?7l";
    struct termios ours;

    has_keys = !tcgetattr(STDIN_FILENO, &before);
    if (has_keys) {
        ours = before;
        ours.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &ours);
    }
    if (write(STDOUT_FILENO, enter, sizeof enter - 1) < 0)
        caught = SIGHUP;
}

static void give_terminal_back(void)
{
    static const char leave[] = "\033[?7h\033[?25h\033[?1049l";

    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (write(STDOUT_FILENO, leave, sizeof leave - 1) < 0)
        return;
}

static void size_of_terminal(int *across, int *down)
{
    struct winsize size;

    bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col && size.ws_row;
    *across = known ? size.ws_col : 80;
    *down = known ? size.ws_row : 24;
}

static void draw_screen(struct top_picture *p, const struct top_pages *pages)
{
    int across, down;

    size_of_terminal(&across, &down);
    top_draw_text(p, "\033[H");
    p->end_of_line = "\033[K\r\n";
    p->lines_left = down - 2; /* without the heading and the last line, which a line break would scroll */
    if (pages->count)
        top_draw_table(p, pages, across);
    else
        top_draw_text(p, "nothing runs under Penstock any more; type q to leave\033[K\r\n");
    if (p->lines_left < 0) {
        char more[64];
        snprintf(more, sizeof more, "and %d lines more", -p->lines_left);
        top_draw_text(p, more);
    }
    top_draw_text(p, "\033[J");
}

/* Waits until the next look. Returns false if a key ends the program. */
static bool wait_for(const struct timespec *interval, const sigset_t *during)
{
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key;

    if (ppoll(&keys, 1, interval, during) <= 0)
        return true;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n <= 0)
        has_keys = false;
    return n <= 0 || (key != 'q' && key != 'Q' && key != 3);
}

static void stop_for_a_while(void)
{
    give_terminal_back();
    raise(SIGSTOP);
    caught = 0;
    take_terminal();
}

/*
 * Shows the table until a key or a signal ends it; with PIDs, until these processes have ended.
 * Returns the exit status.
 */
static int watch(struct top_pages *pages, const struct timespec *interval, bool colours)
{
    static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
    const struct sigaction action = {.sa_handler = on_signal};
    struct top_picture picture = {.colours = colours};
    sigset_t blocked, during;
    bool goes_on = true;

    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaddset(&blocked, handled[i]);
    sigprocmask(SIG_BLOCK, &blocked, &during); /* they are delivered during waits only */
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaction(handled[i], &action, NULL);
    take_terminal();
    while (goes_on && !caught) {
        draw_screen(&picture, pages);
        goes_on = show(&picture) && wait_for(interval, &during);
        if (caught == SIGTSTP)
            stop_for_a_while();
        top_look(pages);
        goes_on &= pages->count || !pages->only_count;
    }
    give_terminal_back();
    free(picture.text);
    if (pages->only_count && !pages->count)
        top_say(0, "top: the process has ended");
    if (caught && caught != SIGINT) {
        signal(caught, SIG_DFL);
        raise(caught);
        sigprocmask(SIG_SETMASK, &during, NULL);
    }
    return 0;
}

/* ---- once ---- */

static int print(const struct top_pages *pages)
{
    struct top_picture picture = {.end_of_line = "\n", .lines_left = INT32_MAX};
    int across = 0, down;

    if (isatty(STDOUT_FILENO))
        size_of_terminal(&across, &down);
    top_draw_table(&picture, pages, across);
    bool shown = show(&picture);
    free(picture.text);
    return shown ? 0 : top_say(1, "top: standard output can't be written");
}

/* Prints a line for each process that is missing. Returns 1 if nothing can be shown. */
static int say_nothing_there(const struct top_pages *pages)
{
    for (size_t i = 0; i < pages->only_count; i++) {
        bool there = false;
        for (size_t k = 0; k < pages->count; k++)
            there |= pages->process[k].pid == (uint64_t)pages->only[i];
        if (!there)
            top_say_why_not(pages->only[i]);
    }
    if (pages->count)
        return 0;
    if (!pages->only_count && pages->elsewhere)
        return top_say(1, "top: nothing runs under Penstock here; pages in other containers: %u", pages->elsewhere);
    return pages->only_count ? 1 : top_say(1, "top: nothing runs under Penstock");
}

/* ---- arguments ---- */

static int wrong_use(const char *what, const char *expected)
{
    return top_say(2, "top: %s: %s; see penstock top --help", what, expected);
}

static bool parse_interval(const char *text, struct timespec *out)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !(seconds >= 0.1 && seconds <= 3600))
        return false;
    out->tv_sec = (time_t)seconds;
    out->tv_nsec = (long)((seconds - (double)out->tv_sec) * 1e9);
    return true;
}

int main(int argc, char **argv)
{
    struct timespec interval = {.tv_sec = 1};
    struct top_pages pages = {0};
    bool once = false, json = false;
    pid_t *pids = calloc((size_t)argc, sizeof *pids);

    if (!pids)
        return top_say(1, "top: out of memory");
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        char *end;
        if (!strcmp(a, "--once")) {
            once = true;
        } else if (!strcmp(a, "--json")) {
            json = true;
        } else if (!strncmp(a, "-d", 2) || !strncmp(a, "--interval", 10)) {
            const char *value = a[1] == 'd' ? a + 2 : a[10] == '=' ? a + 11 : a + 10;
            if (!*value)
                value = i + 1 < argc ? argv[++i] : "";
            if (!parse_interval(value, &interval))
                return wrong_use(*value ? value : "--interval", "expected seconds from 0.1 to 3600");
        } else if (*a >= '1' && *a <= '9') {
            long pid = strtol(a, &end, 10);
            if (*end || pid > INT32_MAX)
                return wrong_use(a, "expected the PID of a process");
            pids[pages.only_count++] = (pid_t)pid;
        } else {
            return wrong_use(a, *a == '-' ? "no such option" : "expected the PID of a process");
        }
    }
    pages.only = pids;
    const char *terminal = getenv("TERM"), *no_color = getenv("NO_COLOR");
    top_look(&pages);
    int status = say_nothing_there(&pages);
    if (json)
        return top_write_json(&pages) ? top_say(1, "top: standard output can't be written") : status;
    if (status)
        return status;
    if (once || !isatty(STDOUT_FILENO) || !terminal || !strcmp(terminal, "dumb"))
        return print(&pages);
    return watch(&pages, &interval, !no_color || !*no_color);
}
