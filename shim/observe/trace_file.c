#include "observe/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/output.h"

int ps_trace_file_open(struct ps_trace_file *file, const char *path, int flags)
{
    struct stat status;
    /* A pipe without a reader is refused: waiting for one would hold up the program. */
    int fd = ps_output_open(path, flags | O_NONBLOCK), r = 0;

    if (fd < 0)
        return fd;
    if (fstat(fd, &status) || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK))
        r = -errno;
    /* Only the process with the lock empties the file. */
    else if (S_ISREG(status.st_mode) && (flock(fd, LOCK_EX | LOCK_NB) || ftruncate(fd, 0)))
        r = -errno;
    if (r) {
        close(fd);
        return r;
    }
    file->fd = fd;
    file->error = 0;
    file->bytes = file->used = 2;
    memcpy(file->gathered, "[\n", 2);
    return 0;
}

static void put(struct ps_trace_file *file, const char *text, size_t bytes)
{
    memcpy(file->gathered + file->used, text, bytes);
    file->used += bytes;
    file->bytes += bytes;
}

/* Adds an event. `end`: the text behind it. */
static void add(struct ps_trace_file *file, const char *event, size_t bytes, const char *end)
{
    size_t whole = bytes + strlen(end), left = PS_TRACE_PAGE - file->bytes % PS_TRACE_PAGE;

    if (file->used + left + whole > sizeof file->gathered)
        ps_trace_file_flush(file);
    if (left < whole) { /* blanks up to the end of the page; JSON allows them anywhere */
        memset(file->gathered + file->used, ' ', left);
        file->gathered[file->used + left - 1] = '\n';
        file->used += left;
        file->bytes += left;
    }
    put(file, event, bytes);
    put(file, end, whole - bytes);
}

void ps_trace_file_add(struct ps_trace_file *file, const char *event, size_t bytes)
{
    if (!file->error && bytes <= PS_TRACE_EVENT_MAX)
        add(file, event, bytes, ",\n");
}

int ps_trace_file_flush(struct ps_trace_file *file)
{
    if (!file->error)
        file->error = ps_json_sink_fd(file->gathered, file->used, &file->fd);
    file->used = 0;
    return file->error;
}

int ps_trace_file_close(struct ps_trace_file *file, const char *event, size_t bytes)
{
    if (!file->error)
        add(file, event, bytes, "\n]\n");
    ps_trace_file_flush(file);
    if (close(file->fd) && !file->error)
        file->error = -errno;
    return file->error;
}
