/*
 * A program's arguments, one a line, up to a NUL, and the file that they name. Whatever a file
 * says, it says nothing once each of its lines is a comment. The answer does not depend on how many
 * bytes a read returns, nor on a line of other text before and behind.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16

static struct fuzz_input contents;
static size_t file_at, read_bytes_max;

static int open_file(const char *path)
{
    file_at = 0;
    return *path ? 3 : -1;
}

static int file_status(struct stat *out)
{
    *out = (struct stat){.st_mode = S_IFREG | 0644, .st_size = (off_t)contents.left};
    return 0;
}

static ssize_t read_file(char *to, size_t bytes)
{
    size_t left = contents.left - file_at;

    bytes = bytes < left ? bytes : left;
    bytes = bytes < read_bytes_max ? bytes : read_bytes_max;
    if (bytes)
        memcpy(to, contents.at + file_at, bytes);
    file_at += bytes;
    return (ssize_t)bytes;
}

#define open(path, flags) open_file(path)
#define fstat(fd, out) ((void)(fd), file_status(out))
#define read(fd, to, bytes) ((void)(fd), read_file(to, bytes))
#define close(fd) (void)(fd)
#include "shim/hooks/torch_settings.c"
#undef open
#undef fstat
#undef read
#undef close

/* Returns what the file alone needs; NULL: nothing. */
static const char *need_of(const uint8_t *bytes, size_t length, const char *name)
{
    char program[] = "python", path[32];
    char *const arguments[] = {program, path, NULL};
    struct ps_torch_settings needs;

    snprintf(path, sizeof path, "%s", name);
    contents = (struct fuzz_input){bytes, length};
    bool found = ps_torch_settings_own_allocator(2, arguments, &needs);
    fuzz_require(found == (needs.what != NULL) && (!found || !strcmp(needs.where, name)));
    return needs.what;
}

/* Puts `before` at the beginning of each line, or only of the first one; `behind` at the end. */
static const char *need_with(const char *before, bool each_line, const char *behind, const struct fuzz_input *in,
                             const char *name)
{
    size_t used = 0, length = strlen(before);
    uint8_t *text = fuzz_allocate((in->left + 1) * (each_line ? length + 1 : 1) + length + strlen(behind));

    for (size_t i = 0; i <= in->left; i++) {
        if (i == 0 || (each_line && in->at[i - 1] == '\n')) {
            memcpy(text + used, before, length);
            used += length;
        }
        if (i < in->left)
            text[used++] = in->at[i];
    }
    memcpy(text + used, behind, strlen(behind));
    const char *need = need_of(text, used + strlen(behind), name);
    free(text);
    return need;
}

static void check_file(const struct fuzz_input *in, const char *name)
{
    read_bytes_max = SIZE_MAX;
    const char *need = need_of(in->at, in->left, name);
    read_bytes_max = 1 + in->left % 7;
    fuzz_require(need_of(in->at, in->left, name) == need);
    read_bytes_max = SIZE_MAX;
    fuzz_require(!need_with("#", true, "", in, name));
    fuzz_require(!need_with("  # ", true, "", in, name));
    if (in->left)
        fuzz_require(need_with("import torch\n", false, "\nx = 1\n", in, name) == need);
}

static void check_arguments(char *text, const struct fuzz_input *in)
{
    char *arguments[ARGUMENTS_MAX + 1] = {NULL}, *rest = NULL;
    int count = 0;
    struct ps_torch_settings needs;

    for (char *one = strtok_r(text, "\n", &rest); one && count < ARGUMENTS_MAX; one = strtok_r(NULL, "\n", &rest))
        arguments[count++] = one;
    contents = *in;
    bool found = ps_torch_settings_own_allocator(count, arguments, &needs);
    fuzz_require(found == (needs.what != NULL));
    fuzz_require(!found || strnlen(needs.where, sizeof needs.where) < sizeof needs.where);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    char *arguments = fuzz_text(&in, '\0');

    check_file(&in, "train.py");
    check_file(&in, "config.yaml");
    check_arguments(arguments, &in);
    free(arguments);
    return 0;
}
