#include "hooks/torch_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The text that is searched. */
struct text {
    const char *start, *end;
    bool is_code; /* Python, where a value stands in quotes; in configurations it may stand without */

    /* The line that was looked at last, with its end; NULL: none yet. */
    const char *line, *line_end;
    bool line_is_comment;
};

static const char mode_needs[] = "names a mode of torch.compile that uses CUDA graphs",
                  graphs_need[] = "asks torch.compile for CUDA graphs",
                  history_needs[] = "records torch's memory history";

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'';
}

static const char *before_blanks(const char *at, const char *start)
{
    while (at > start && is_blank(at[-1]))
        at--;
    return at;
}

static const char *behind_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at;
}

static bool ends_with(const char *start, const char *end, const char *word)
{
    const ptrdiff_t length = (ptrdiff_t)strlen(word);

    return end - start >= length && !memcmp(end - length, word, (size_t)length);
}

static bool begins_with(const char *start, const char *end, const char *word)
{
    return end - start >= (ptrdiff_t)strlen(word) && !memcmp(start, word, strlen(word));
}

/*
 * Returns whether `at` is in a comment line: many things that were tried once stand in those. A
 * line may be as long as the file, so each is looked at only once.
 */
static bool is_comment(const char *at, struct text *text)
{
    if (text->line && at >= text->line && at < text->line_end)
        return text->line_is_comment;
    const char *line = at, *newline = memchr(at, '\n', (size_t)(text->end - at));
    while (line > text->start && line[-1] != '\n')
        line--;
    const char *first = behind_blanks(line, text->end);
    text->line = line;
    text->line_end = newline ? newline : text->end;
    text->line_is_comment = first < text->end && *first == '#';
    return text->line_is_comment;
}

/*
 * Returns whether the text at `at` is the value of a key that ends with `key`: key="... or "key":
 * '... or the like. A list of possible values is no choice.
 */
static bool is_value_of(const char *key, const char *at, struct text *text)
{
    if (at > text->start && is_quote(at[-1]))
        at--;
    else if (text->is_code)
        return false;
    at = before_blanks(at, text->start);
    if (at == text->start || (at[-1] != '=' && at[-1] != ':'))
        return false;
    at = before_blanks(at - 1, text->start);
    if (at > text->start && is_quote(at[-1]))
        at--;
    return ends_with(text->start, at, key) && !is_comment(at, text);
}

/*
 * The modes reduce-overhead and max-autotune ask torch's own allocator for its state, to keep the
 * memory that graphs share. On cudaMallocAsync that ends the program (torch 2.11: "does not yet
 * support getCheckpointState").
 */
static const char *const modes[] = {"reduce-overhead", "max-autotune"};

static bool is_mode(const char *end_of_mode, const char *end)
{
    return !begins_with(end_of_mode, end, "-no-cudagraphs");
}

static const char *mode_in(struct text *text)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (const char *at = text->start; (at = memmem(at, (size_t)(text->end - at), modes[i], strlen(modes[i])));
             at++)
            if (is_mode(at + strlen(modes[i]), text->end) && is_value_of("mode", at, text))
                return mode_needs;
    return NULL;
}

/*
 * Looks for the settings that such a mode implies: the option triton.cudagraphs, or the backend
 * cudagraphs.
 */
static const char *graphs_in(struct text *text)
{
    static const char word[] = "cudagraphs";

    for (const char *at = text->start; (at = memmem(at, (size_t)(text->end - at), word, sizeof word - 1)); at++) {
        const char *behind = at + sizeof word - 1;
        if (behind < text->end && is_quote(*behind))
            behind++;
        if (is_value_of("backend", at, text))
            return graphs_need;
        behind = behind_blanks(behind, text->end);
        if (!ends_with(text->start, at, "triton.") || behind == text->end || (*behind != '=' && *behind != ':'))
            continue;
        behind = behind_blanks(behind + 1, text->end);
        if ((begins_with(behind, text->end, "True") || begins_with(behind, text->end, "true")) && !is_comment(at, text))
            return graphs_need;
    }
    return NULL;
}

/*
 * Looks for torch.cuda.memory._record_memory_history: "does not yet support recordHistory". Many
 * scripts call it only if one of their options asks for it. That is no reason to be slower without
 * the option. A call that isn't indented is always made.
 */
static const char *history_in(const struct text *text)
{
    static const char word[] = "_record_memory_history(";

    for (const char *at = text->start; (at = memmem(at, (size_t)(text->end - at), word, sizeof word - 1)); at++) {
        const char *line = at;
        while (line > text->start && (line[-1] == '.' || line[-1] == '_' || (line[-1] >= 'a' && line[-1] <= 'z')))
            line--;
        if (text->is_code && (line == text->start || line[-1] == '\n'))
            return history_needs;
    }
    return NULL;
}

static const char *needed_in(struct text *text)
{
    const char *what = mode_in(text);

    what = what ? what : graphs_in(text);
    return what ? what : history_in(text);
}

#define FILE_BYTES_MAX (4 << 20)

/*
 * Reads to the file's end, but `bytes` at most: another process may be writing it. Returns the
 * number of bytes read.
 */
static size_t read_whole(int file, char *to, size_t bytes)
{
    size_t got = 0;

    while (got < bytes) {
        ssize_t n = read(file, to + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static const char *needed_in_file(const char *path, bool is_code)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of that name would block otherwise */
    struct stat facts;
    const char *what = NULL;

    if (file < 0)
        return NULL;
    if (!fstat(file, &facts) && S_ISREG(facts.st_mode) && facts.st_size > 0 && facts.st_size <= FILE_BYTES_MAX) {
        char *start = malloc((size_t)facts.st_size);
        if (start)
            what = needed_in(&(struct text){
                .start = start, .end = start + read_whole(file, start, (size_t)facts.st_size), .is_code = is_code});
        free(start);
    }
    close(file);
    return what;
}

/* Returns the need that the argument itself shows: a mode anywhere in it, or a backend; or NULL. */
static const char *needed_by_argument(const char *argument)
{
    const char *end = argument + strlen(argument);

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (const char *at = argument; (at = strstr(at, modes[i])); at++)
            if (is_mode(at + strlen(modes[i]), end))
                return mode_needs;
    return !strcmp(argument, "cudagraphs") || ends_with(argument, end, "backend=cudagraphs") ? graphs_need : NULL;
}

/* Returns the need in a file that the argument names, by itself or behind --option=; or NULL. */
static const char *needed_by_file(const char *argument)
{
    static const char *const configurations[] = {".yaml", ".yml", ".json", ".toml"};
    const char *end = argument + strlen(argument), *path = strchr(argument, '=');

    if (ends_with(argument, end, ".py"))
        return needed_in_file(argument, true);
    path = *argument == '-' && path ? path + 1 : argument;
    for (size_t i = 0; i < sizeof configurations / sizeof *configurations; i++)
        if (ends_with(path, end, configurations[i]))
            return needed_in_file(path, false);
    return NULL;
}

/*
 * Returns the need in the file of a module that is run by its name (-m), or NULL. Looks below the
 * working directory, where a program's own modules lie. Leaves the file's path in `where`.
 */
static const char *needed_by_module(const char *module, char *where, size_t room)
{
    static const char *const behind[] = {".py", "/__main__.py"};
    const char *what = NULL;

    for (size_t i = 0; i < sizeof behind / sizeof *behind && !what; i++) {
        const int bytes = snprintf(where, room, "%s%s", module, behind[i]);
        if (bytes < 0 || (size_t)bytes >= room)
            return NULL;
        for (char *at = where; at < where + strlen(module); at++)
            *at = (char)(*at == '.' ? '/' : *at);
        what = needed_in_file(where, true);
    }
    return what;
}

bool ps_torch_settings_own_allocator(int count, char *const *arguments, struct ps_torch_settings *needs)
{
    needs->what = NULL;
    for (int i = 1; i < count && !needs->what; i++) {
        const char *one = arguments[i];
        needs->what = needed_by_argument(one);
        needs->what = needs->what ? needs->what : needed_by_file(one);
        if (needs->what)
            snprintf(needs->where, sizeof needs->where, "%.255s", one);
        else if (i + 1 < count && (!strcmp(one, "-m") || !strcmp(one, "--module")))
            needs->what = needed_by_module(arguments[i + 1], needs->where, sizeof needs->where);
    }
    return needs->what != NULL;
}
