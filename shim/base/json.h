/*
 * A small streaming JSON writer. It allocates nothing, takes no lock and calls only its sink. So a
 * signal handler can write a report when the sink is write(2).
 *
 * Threads: one writer belongs to one thread. Errors are sticky: after the first one nothing more is
 * written, and ps_json_finish returns it. Callers need not check the calls in between.
 */
#ifndef PS_JSON_H
#define PS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_JSON_DEPTH_MAX 16

/* A sink takes `bytes` bytes. It returns 0, or -errno, which ends the output. */
typedef int (*ps_json_sink_fn)(const char *text, size_t bytes, void *ctx);

/* A writer. The init functions fill it; its fields are private to json.c. */
struct ps_json {
    char *buffer;
    size_t capacity;
    size_t used;
    ps_json_sink_fn sink; /* NULL: the buffer is the destination */
    void *ctx;
    int error;
    unsigned depth;
    bool done;     /* the outermost value is complete */
    bool one_line; /* no line breaks and blanks between values */
    bool is_array[PS_JSON_DEPTH_MAX];
    bool has_member[PS_JSON_DEPTH_MAX];
};

/* Begins a text in `buffer`, which ends up NUL-terminated. -ENOSPC: it is too small. */
void ps_json_init_buffer(struct ps_json *j, char *buffer, size_t capacity);

/* Does the same as ps_json_init_buffer, with the text all on one line. */
void ps_json_init_line(struct ps_json *j, char *buffer, size_t capacity);

/*
 * Begins a text that goes through `sink`. The writer gathers text in `buffer`, which has any
 * capacity from 1 and must outlive the writer.
 */
void ps_json_init_sink(struct ps_json *j, char *buffer, size_t capacity, ps_json_sink_fn sink, void *ctx);

/* A sink for the file descriptor that `ctx` points to. It goes on after EINTR and short writes. */
int ps_json_sink_fd(const char *text, size_t bytes, void *ctx);

/*
 * These functions write values. `key` is NULL for the outermost value and inside arrays, and must
 * be given inside objects. A wrong `key`, an end without a begin and a second outermost value are
 * -EINVAL. Nesting deeper than PS_JSON_DEPTH_MAX is -EOVERFLOW. These errors are sticky. Strings
 * are UTF-8; each byte that is not part of valid UTF-8 is written as U+FFFD. A NULL string is
 * written as null.
 */
void ps_json_begin_object(struct ps_json *j, const char *key);
void ps_json_begin_array(struct ps_json *j, const char *key);
void ps_json_end(struct ps_json *j);
void ps_json_u64(struct ps_json *j, const char *key, uint64_t value);
void ps_json_i64(struct ps_json *j, const char *key, int64_t value);
/* Writes thousandths as a decimal fraction: 1234567 is 1234.567. */
void ps_json_thousandths(struct ps_json *j, const char *key, uint64_t value);
void ps_json_bool(struct ps_json *j, const char *key, bool value);
void ps_json_null(struct ps_json *j, const char *key);
void ps_json_string(struct ps_json *j, const char *key, const char *value);

/* Says whether the values that follow stand on one line, as long lists of figures do. */
void ps_json_pack(struct ps_json *j, bool on);

/*
 * Closes the text with a newline and hands over the text that is still gathered. Returns 0, the
 * first error, or -EINVAL when a value is open or missing.
 */
int ps_json_finish(struct ps_json *j);

#endif
