#include "base/json.h"

#include <errno.h>
#include <string.h>

#include "base/output.h"
#include "base/plain_text.h"

static void fail(struct ps_json *j, int error)
{
    if (j->error == 0)
        j->error = error;
}

static void init(struct ps_json *j, char *buffer, size_t capacity, ps_json_sink_fn sink, void *ctx)
{
    memset(j, 0, sizeof *j);
    j->buffer = buffer;
    j->capacity = capacity;
    j->sink = sink;
    j->ctx = ctx;
    if (!buffer || capacity == 0)
        fail(j, -EINVAL);
}

void ps_json_init_buffer(struct ps_json *j, char *buffer, size_t capacity)
{
    init(j, buffer, capacity, NULL, NULL);
    if (j->error == 0)
        buffer[0] = '\0';
}

void ps_json_init_line(struct ps_json *j, char *buffer, size_t capacity)
{
    ps_json_init_buffer(j, buffer, capacity);
    j->one_line = true;
}

void ps_json_init_sink(struct ps_json *j, char *buffer, size_t capacity, ps_json_sink_fn sink, void *ctx)
{
    init(j, buffer, capacity, sink, ctx);
}

int ps_json_sink_fd(const char *text, size_t bytes, void *ctx)
{
    return ps_output_write_whole(*(const int *)ctx, text, bytes);
}

static void flush(struct ps_json *j)
{
    if (j->error == 0 && j->used > 0) {
        int rc = j->sink(j->buffer, j->used, j->ctx);
        if (rc != 0)
            fail(j, rc);
    }
    j->used = 0;
}

static void put(struct ps_json *j, const char *text, size_t bytes)
{
    while (bytes > 0 && j->error == 0) {
        /* If the buffer is the destination, its last byte is for the NUL. */
        size_t room = j->capacity - j->used - (j->sink ? 0 : 1);
        size_t piece = bytes < room ? bytes : room;
        memcpy(j->buffer + j->used, text, piece);
        j->used += piece;
        text += piece;
        bytes -= piece;
        if (!j->sink)
            j->buffer[j->used] = '\0';
        if (bytes > 0) {
            if (j->sink)
                flush(j);
            else
                fail(j, -ENOSPC);
        }
    }
}

static void put_char(struct ps_json *j, char c)
{
    put(j, &c, 1);
}

static void put_escape(struct ps_json *j, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

    switch (c) {
    case '"':
        put(j, "\\\"", 2);
        break;
    case '\\':
        put(j, "\\\\", 2);
        break;
    case '\n':
        put(j, "\\n", 2);
        break;
    case '\t':
        put(j, "\\t", 2);
        break;
    case '\r':
        put(j, "\\r", 2);
        break;
    default:
        put(j, text, sizeof text);
    }
}

static void put_string(struct ps_json *j, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    put_char(j, '"');
    while (*s) {
        size_t length = ps_utf8_length(s);
        if (length == 0) {
            put(j, "\xef\xbf\xbd", 3); /* U+FFFD */
            length = 1;
        } else if (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7f) {
            put_escape(j, *s);
        } else if (*s == 0xc2 && s[1] < 0xa0) {
            put_escape(j, s[1]); /* a control character, escaped for readers that show the text on a terminal */
        } else {
            put(j, (const char *)s, length);
        }
        s += length;
    }
    put_char(j, '"');
}

static void break_line(struct ps_json *j)
{
    if (j->one_line)
        return;
    put_char(j, '\n');
    for (unsigned i = 0; i < j->depth; i++)
        put(j, "  ", 2);
}

/*
 * Writes the text before a value: comma, line break, indent and key. Returns false if no value is
 * allowed here.
 */
static bool begin_value(struct ps_json *j, const char *key)
{
    if (j->error != 0)
        return false;
    if (j->depth == 0) {
        if (key || j->done) {
            fail(j, -EINVAL);
            return false;
        }
        return true;
    }
    unsigned level = j->depth - 1;
    if ((key == NULL) != j->is_array[level]) {
        fail(j, -EINVAL);
        return false;
    }
    if (j->has_member[level])
        put_char(j, ',');
    j->has_member[level] = true;
    break_line(j);
    if (key) {
        put_string(j, key);
        put(j, ": ", j->one_line ? 1 : 2);
    }
    return j->error == 0;
}

static void end_value(struct ps_json *j)
{
    if (j->depth == 0)
        j->done = true;
}

static void begin_nested(struct ps_json *j, const char *key, bool is_array)
{
    if (j->error == 0 && j->depth == PS_JSON_DEPTH_MAX)
        fail(j, -EOVERFLOW);
    if (!begin_value(j, key))
        return;
    put_char(j, is_array ? '[' : '{');
    j->is_array[j->depth] = is_array;
    j->has_member[j->depth] = false;
    j->depth++;
}

void ps_json_begin_object(struct ps_json *j, const char *key)
{
    begin_nested(j, key, false);
}

void ps_json_begin_array(struct ps_json *j, const char *key)
{
    begin_nested(j, key, true);
}

void ps_json_pack(struct ps_json *j, bool on)
{
    j->one_line = on;
}

void ps_json_end(struct ps_json *j)
{
    if (j->depth == 0) {
        fail(j, -EINVAL);
        return;
    }
    if (j->error != 0)
        return;
    j->depth--;
    if (j->has_member[j->depth])
        break_line(j);
    put_char(j, j->is_array[j->depth] ? ']' : '}');
    end_value(j);
}

static void put_decimal(struct ps_json *j, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    put(j, digits + at, sizeof digits - at);
}

void ps_json_u64(struct ps_json *j, const char *key, uint64_t value)
{
    if (!begin_value(j, key))
        return;
    put_decimal(j, value);
    end_value(j);
}

void ps_json_i64(struct ps_json *j, const char *key, int64_t value)
{
    if (!begin_value(j, key))
        return;
    if (value < 0)
        put_char(j, '-');
    /* Negated as an unsigned number, because INT64_MIN has no positive counterpart. */
    put_decimal(j, value < 0 ? UINT64_C(0) - (uint64_t)value : (uint64_t)value);
    end_value(j);
}

void ps_json_thousandths(struct ps_json *j, const char *key, uint64_t value)
{
    if (!begin_value(j, key))
        return;
    put_decimal(j, value / 1000);
    put_char(j, '.');
    for (uint64_t unit = 100, rest = value % 1000; unit; unit /= 10)
        put_char(j, (char)('0' + rest / unit % 10));
    end_value(j);
}

void ps_json_bool(struct ps_json *j, const char *key, bool value)
{
    if (!begin_value(j, key))
        return;
    if (value)
        put(j, "true", 4);
    else
        put(j, "false", 5);
    end_value(j);
}

void ps_json_null(struct ps_json *j, const char *key)
{
    if (!begin_value(j, key))
        return;
    put(j, "null", 4);
    end_value(j);
}

void ps_json_string(struct ps_json *j, const char *key, const char *value)
{
    if (!value) {
        ps_json_null(j, key);
        return;
    }
    if (!begin_value(j, key))
        return;
    put_string(j, value);
    end_value(j);
}

int ps_json_finish(struct ps_json *j)
{
    if (j->error == 0 && (j->depth != 0 || !j->done))
        fail(j, -EINVAL);
    put_char(j, '\n');
    if (j->sink)
        flush(j);
    return j->error;
}
