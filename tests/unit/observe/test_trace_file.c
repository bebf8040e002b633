/* The trace's file: cut at any page, or where the disk is full, it consists of whole events. */
#include "observe/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"

static char path[] = "/tmp/penstock-trace.XXXXXX";
static struct ps_trace_file file;
static char text[4u << 20];

static size_t read_back(void)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);

    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/*
 * Writes events of many sizes, each with its number and some letters: {N xxx}. Returns their
 * number.
 */
static unsigned write_events(unsigned n)
{
    static char event[PS_TRACE_EVENT_MAX];
    unsigned seed = 7;

    for (unsigned i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned letters = i % 50 == 0 ? PS_TRACE_EVENT_MAX - 20 : (seed >> 16) % 300;
        int bytes = snprintf(event, sizeof event, "{%u ", i);
        memset(event + bytes, 'x', letters);
        event[(size_t)bytes + letters] = '}';
        ps_trace_file_add(&file, event, (size_t)bytes + letters + 1);
        if (i % 97 == 0)
            ps_trace_file_flush(&file);
    }
    return n;
}

/*
 * Returns the number of whole events in the first `bytes` bytes of the text, counted from 0 on;
 * UINT32_MAX: the bytes are something else.
 */
static unsigned whole_events(size_t bytes)
{
    const char *at = text, *end = text + bytes;
    unsigned n = 0;

    if (bytes < 2 || *at++ != '[')
        return UINT32_MAX;
    for (;;) {
        at += strspn(at, " \n,");
        if (at >= end)
            return n;
        char *rest;
        if (*at != '{' || strtoul(at + 1, &rest, 10) != n || *rest != ' ')
            return UINT32_MAX;
        rest += 1 + strspn(rest + 1, "x");
        if (*rest != '}' || rest >= end)
            return UINT32_MAX;
        at = rest + 1;
        n++;
    }
}

static void test_whole(void)
{
    EXPECT_INT(0, ps_trace_file_open(&file, path, 0));
    unsigned n = write_events(3000);
    EXPECT_INT(0, ps_trace_file_close(&file, "{3000 }", 7));
    size_t bytes = read_back();
    EXPECT(bytes > 100000);
    EXPECT_TEXT("{3000 }\n]\n", text + bytes - 10);
    EXPECT_U64(n + 1, whole_events(bytes - 2));
    unsigned before = 0;
    for (size_t page = PS_TRACE_PAGE; page < bytes; page += PS_TRACE_PAGE) {
        unsigned now = whole_events(page);
        EXPECT(now != UINT32_MAX && now > before);
        before = now;
    }
    EXPECT_U64(UINT32_MAX, whole_events(PS_TRACE_PAGE / 2)); /* as at any other place */
}

static void test_too_large(void)
{
    static char large[PS_TRACE_EVENT_MAX + 1];

    memset(large, 'x', sizeof large);
    EXPECT_INT(0, ps_trace_file_open(&file, path, 0));
    ps_trace_file_add(&file, large, sizeof large);
    EXPECT_INT(0, ps_trace_file_close(&file, "{0 }", 4));
    EXPECT_U64(sizeof "[\n{0 }\n]\n" - 1, read_back()); /* and the earlier text is gone */
    EXPECT_TEXT("[\n{0 }\n]\n", text);
}

static void test_full_disk(void)
{
    const struct rlimit little = {.rlim_cur = 10 * PS_TRACE_PAGE, .rlim_max = RLIM_INFINITY},
                        all = {RLIM_INFINITY, RLIM_INFINITY};

    signal(SIGXFSZ, SIG_IGN);
    EXPECT_INT(0, ps_trace_file_open(&file, path, 0));
    EXPECT_INT(0, setrlimit(RLIMIT_FSIZE, &little));
    write_events(3000);
    EXPECT_INT(-EFBIG, ps_trace_file_flush(&file));
    EXPECT_INT(-EFBIG, ps_trace_file_close(&file, "{}", 2));
    setrlimit(RLIMIT_FSIZE, &all);
    EXPECT_U64(10 * PS_TRACE_PAGE, read_back());
    EXPECT(whole_events(10 * PS_TRACE_PAGE) > 100 && whole_events(10 * PS_TRACE_PAGE) < 3000);
}

static void test_what_can_not_be_opened(void)
{
    static struct ps_trace_file second;
    char pipe_path[64];

    EXPECT_INT(-ENOENT, ps_trace_file_open(&file, "/nowhere/at/all", 0));
    EXPECT_INT(-EISDIR, ps_trace_file_open(&file, "/tmp", 0));
    EXPECT_INT(0, ps_trace_file_open(&file, path, 0));
    write_events(10);
    ps_trace_file_flush(&file);
    EXPECT_INT(-EWOULDBLOCK, ps_trace_file_open(&second, path, 0)); /* it would write over it */
    EXPECT_INT(0, ps_trace_file_close(&file, "{10 }", 5));
    size_t bytes = read_back();
    EXPECT_U64(11, whole_events(bytes - 2));
    EXPECT_INT(0, ps_trace_file_open(&second, path, 0)); /* it is over */
    EXPECT_INT(0, ps_trace_file_close(&second, "{}", 2));
    snprintf(pipe_path, sizeof pipe_path, "%s.pipe", path);
    EXPECT_INT(0, mkfifo(pipe_path, 0600));
    EXPECT_INT(-ENXIO, ps_trace_file_open(&file, pipe_path, 0));
    unlink(pipe_path);
}

int main(void)
{
    close(mkstemp(path));
    test_whole();
    test_too_large();
    test_full_disk();
    test_what_can_not_be_opened();
    unlink(path);
    return expect_status();
}
