/*
 * penstock-settings: the PENSTOCK_* variables as the shared object reads them, for scripts and
 * documentation.
 *
 *   penstock-settings check      one line on stderr for each variable of the environment that can't
 *                                be used; exit status 2 if a line was printed
 *   penstock-settings list       NAME, unit, default, accepted values and help, separated by tabs
 *   penstock-settings markdown   the same as the table of scripts/manual/settings.md
 *   penstock-settings help       the same in lines of 80 columns
 *   penstock-settings man        the same as a list of the man page libpenstock(7)
 *   penstock-settings words      each value that is a word, in a line: NAME, a tab, the word; FILE
 *                                if the value can be the path of a file
 */
#include "base/plain_text.h"
#include "base/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

static void show_problem(const char *variable, const char *value, const char *explanation, void *ctx)
{
    char text[PS_LOG_LINE_MAX];

    (void)ctx;
    ps_settings_problem_text(text, sizeof text, variable, value, explanation);
    ps_plain_text(text);
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

/* Prints a cell of a Markdown table. A bar in it is escaped, as it would end the cell. */
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

/* Prints text in indented lines of at most 80 columns. */
static void print_wrapped(const char *text)
{
    enum { INDENT = 6, COLUMNS = 80 };
    size_t column = 0;

    for (const char *word = text; *word;) {
        size_t length = strcspn(word, " ");
        bool fits = column > 0 && column + 1 + length <= COLUMNS;
        if (column > 0 && !fits)
            putchar('\n');
        printf("%*s%.*s", fits ? 1 : INDENT, "", (int)length, word);
        column = fits ? column + 1 + length : INDENT + length;
        word += length;
        word += strspn(word, " ");
    }
    putchar('\n');
}

static int help(void)
{
    size_t count;
    const struct ps_settings_entry *entries = ps_settings_entries(&count);

    for (size_t i = 0; i < count; i++) {
        const struct ps_settings_entry *e = &entries[i];
        char accepted[1024];
        snprintf(accepted, sizeof accepted, "%s%s%s", e->accepted, e->default_text[0] ? "; default " : "",
                 e->default_text);
        printf("%s%s\n", i > 0 ? "\n" : "", e->name);
        print_wrapped(e->help);
        print_wrapped(accepted);
    }
    return 0;
}

/* Prints text for troff, with its special characters escaped. */
static void print_troff(const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '\\':
            printf("\\e");
            break;
        case '-':
            printf("\\-");
            break;
        case '\'':
            printf("\\(aq");
            break;
        case '`':
            printf("\\(ga");
            break;
        default:
            putchar(*text);
        }
    }
    putchar('\n');
}

static int man(void)
{
    size_t count;
    const struct ps_settings_entry *entries = ps_settings_entries(&count);

    for (size_t i = 0; i < count; i++) {
        const struct ps_settings_entry *e = &entries[i];
        printf(".TP\n.B ");
        print_troff(e->name);
        print_troff(e->help);
        printf(".br\nAccepted: ");
        print_troff(e->accepted);
        printf(".br\nDefault: ");
        print_troff(e->default_text[0] ? e->default_text : "none");
    }
    return 0;
}

static bool accepts(const char *name, const char *value)
{
    static struct ps_settings settings;
    char variable[256];
    char *environment[] = {variable, NULL};

    snprintf(variable, sizeof variable, "%s=%s", name, value);
    return ps_settings_read(&settings, environment, NULL, NULL) == 0;
}

/*
 * Prints the words of `accepted` that the parser takes as values. Words in parentheses are
 * examples, and so are numbers, except in `0 or 1`. `nvtx:PATTERN` counts as `nvtx:`.
 */
static void print_words(const struct ps_settings_entry *e)
{
    bool flag = strcmp(e->accepted, "0 or 1") == 0;

    for (const char *c = e->accepted; *c; c += strcspn(c, " "), c += strspn(c, " ")) {
        char word[64];
        size_t length = 0;
        if (*c == '(') {
            c += strcspn(c, ")");
            continue;
        }
        while (flag ? isdigit((unsigned char)c[length]) : islower((unsigned char)c[length]))
            length++;
        length += length > 0 && c[length] == ':';
        if (length == 0 || length >= sizeof word)
            continue;
        snprintf(word, sizeof word, "%.*s", (int)length, c);
        if (accepts(e->name, word))
            printf("%s\t%s\n", e->name, word);
    }
}

static int words(void)
{
    size_t count;
    const struct ps_settings_entry *entries = ps_settings_entries(&count);

    for (size_t i = 0; i < count; i++) {
        /* If any word is taken as a path, no word is special. */
        if (!accepts(entries[i].name, "file"))
            print_words(&entries[i]);
        if (accepts(entries[i].name, "/file"))
            printf("%s\tFILE\n", entries[i].name);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} commands[] = {{"check", check}, {"list", list}, {"markdown", markdown},
                {"help", help},   {"man", man},   {"words", words}};

int main(int argc, char **argv)
{
    size_t chosen = 0;

    while (chosen < sizeof commands / sizeof *commands && (argc != 2 || strcmp(argv[1], commands[chosen].name) != 0))
        chosen++;
    if (chosen == sizeof commands / sizeof *commands) {
        fputs("usage: penstock-settings check|list|markdown|help|man|words\n", stderr);
        return 2;
    }
    int status = commands[chosen].run();
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("penstock-settings: standard output can't be written\n", stderr);
        return 1;
    }
    return status;
}
