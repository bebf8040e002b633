/*
 * penstock-settings: the PENSTOCK_* variables as the shared object reads them, for scripts and documentation.
 *
 *   penstock-settings check      one line on stderr for each setting of the environment that can't be used; exit status 2 if there is one
 *   penstock-settings list       NAME, unit, default, accepted values and help, separated by tabs
 *   penstock-settings markdown   the same as the table of README.md
 */
#include "settings.h"

#include <stdio.h>
#include <string.h>

extern char **environ;

static void show_problem(const char *variable, const char *value, const char *explanation, void *ctx)
{
    char text[PS_LOG_LINE_MAX];

    (void)ctx;
    ps_settings_problem_text(text, sizeof text, variable, value, explanation);
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
    fprintf(stderr, "penstock: %s\n", text);
}

static int check(void)
{
    static struct ps_settings settings;
    int problems = ps_settings_read(&settings, environ, show_problem, NULL);

    problems += ps_settings_check_paths(&settings, show_problem, NULL);
    return problems > 0 ? 2 : 0;
}

static int list(void)
{
    size_t count;
    const struct ps_settings_entry *entries = ps_settings_entries(&count);

    for (size_t i = 0; i < count; i++) {
        const struct ps_settings_entry *e = &entries[i];
        printf("%s\t%s\t%s\t%s\t%s\n", e->name, e->unit, e->default_text, e->accepted, e->help);
    }
    return 0;
}

/* A cell of a Markdown table, where a bar would end it. */
static void print_cell(const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text);
    }
}

static int markdown(void)
{
    size_t count;
    const struct ps_settings_entry *entries = ps_settings_entries(&count);

    puts("| variable | default | accepted | meaning |");
    puts("|---|---|---|---|");
    for (size_t i = 0; i < count; i++) {
        const struct ps_settings_entry *e = &entries[i];
        printf("| `%s` | %s | ", e->name, e->default_text[0] ? e->default_text : "none");
        print_cell(e->accepted);
        printf(" | ");
        print_cell(e->help);
        puts(" |");
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc == 2 ? argv[1] : "";
    int status;

    if (strcmp(command, "check") == 0) {
        status = check();
    } else if (strcmp(command, "list") == 0) {
        status = list();
    } else if (strcmp(command, "markdown") == 0) {
        status = markdown();
    } else {
        fputs("usage: penstock-settings check|list|markdown\n", stderr);
        return 2;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("penstock-settings: can't write\n", stderr);
        return 1;
    }
    return status;
}
