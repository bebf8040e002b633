/*
 * Calls of the JSON writer, one a byte, with texts and numbers behind them. A tree of what was
 * asked for is kept beside it. What the writer wrote is read by another reader, and is that tree; a
 * call that is not allowed is an error.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "base/json.h"
#include "tests/fuzz/json_reader.h"

#define TEXT_MAX (1u << 20)

enum call { OBJECT, ARRAY, END, U64, I64, THOUSANDTHS, BOOLEAN, NOTHING, STRING, PACK, CALLS };

/* ---- what is expected ---- */

struct expected {
    struct json_value *root, *open[PS_JSON_DEPTH_MAX + 1];
    unsigned depth;
    bool is_wrong; /* a call was not allowed */
};

static struct json_value *expect_value(struct expected *e, enum json_kind kind, const char *key)
{
    struct json_value *parent = e->depth ? e->open[e->depth - 1] : NULL;

    if (e->is_wrong)
        return NULL;
    bool nested = kind == JSON_OBJECT || kind == JSON_ARRAY;
    if ((nested && e->depth == PS_JSON_DEPTH_MAX) ||
        (parent ? (parent->kind == JSON_OBJECT) != (key != NULL) : key || e->root)) {
        e->is_wrong = true;
        return NULL;
    }
    struct json_value *value = calloc(1, sizeof *value), **last = parent ? &parent->first : &e->root;
    while (*last)
        last = &(*last)->next;
    *last = value;
    value->kind = kind;
    value->key = key ? json_expected(key) : NULL;
    if (nested)
        e->open[e->depth++] = value;
    return value;
}

static void expect_text(struct expected *e, enum json_kind kind, const char *key, char *text)
{
    struct json_value *value = expect_value(e, kind, key);

    if (value)
        value->text = text;
    else
        free(text);
}

__attribute__((format(printf, 3, 4))) static void expect_number(struct expected *e, const char *key, const char *format,
                                                                ...)
{
    char text[64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    expect_text(e, JSON_NUMBER, key, strdup(text));
}

static bool is_same(const struct json_value *a, const struct json_value *b)
{
    for (; a && b; a = a->next, b = b->next) {
        if (a->kind != b->kind || !a->key != !b->key || (a->key && strcmp(a->key, b->key) != 0))
            return false;
        if (!a->text != !b->text || (a->text && strcmp(a->text, b->text) != 0) || !is_same(a->first, b->first))
            return false;
    }
    return !a && !b;
}

/* ---- what is asked for ---- */

static void make_call(struct ps_json *j, struct expected *e, enum call call, const char *key, struct fuzz_input *in)
{
    uint64_t number = call == U64 || call == I64 || call == THOUSANDTHS ? fuzz_u64(in) : 0;
    char *text = NULL;

    switch (call) {
    case OBJECT:
        ps_json_begin_object(j, key);
        expect_value(e, JSON_OBJECT, key);
        break;
    case ARRAY:
        ps_json_begin_array(j, key);
        expect_value(e, JSON_ARRAY, key);
        break;
    case END:
        ps_json_end(j);
        e->is_wrong |= !e->depth;
        e->depth -= e->depth > 0;
        break;
    case U64:
        ps_json_u64(j, key, number);
        expect_number(e, key, "%" PRIu64, number);
        break;
    case I64:
        ps_json_i64(j, key, (int64_t)number);
        expect_number(e, key, "%" PRId64, (int64_t)number);
        break;
    case THOUSANDTHS:
        ps_json_thousandths(j, key, number);
        expect_number(e, key, "%" PRIu64 ".%03" PRIu64, number / 1000, number % 1000);
        break;
    case BOOLEAN:
        ps_json_bool(j, key, in->left & 1);
        expect_value(e, in->left & 1 ? JSON_TRUE : JSON_FALSE, key);
        break;
    case NOTHING:
        ps_json_string(j, key, NULL);
        expect_value(e, JSON_NULL, key);
        break;
    case STRING:
        text = fuzz_text(in, '\0');
        ps_json_string(j, key, text);
        expect_text(e, JSON_STRING, key, json_expected(text));
        free(text);
        break;
    default:
        ps_json_pack(j, in->left & 1);
    }
}

/* A byte is a call, and says whether a key comes with it: usually where there must be one. */
static int make_calls(struct ps_json *j, struct expected *e, struct fuzz_input in)
{
    while (in.left) {
        unsigned byte = fuzz_u8(&in);
        bool wants_key = e->depth && e->open[e->depth - 1]->kind == JSON_OBJECT;
        char *key = wants_key != (byte >= 250) ? fuzz_text(&in, '\0') : NULL;
        make_call(j, e, byte % CALLS, key, &in);
        free(key);
    }
    for (unsigned left = e->is_wrong ? 0 : e->depth; left; left--)
        make_call(j, e, END, NULL, &in);
    return ps_json_finish(j);
}

static char written[TEXT_MAX];
static size_t written_bytes;

static int take_text(const char *text, size_t bytes, void *ctx)
{
    (void)ctx;
    fuzz_require(written_bytes + bytes <= sizeof written);
    memcpy(written + written_bytes, text, bytes);
    written_bytes += bytes;
    return 0;
}

static void check(const struct expected *e, int error, const char *text, size_t bytes)
{
    if (e->is_wrong || !e->root) {
        fuzz_require(error == -EINVAL || error == -EOVERFLOW);
        return;
    }
    fuzz_require(error == 0 && bytes && text[bytes - 1] == '\n');
    struct json_value *read = json_read(text, bytes);
    fuzz_require(read);
    fuzz_require(is_same(read, e->root));
    json_free(read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char buffer[TEXT_MAX];
    const struct fuzz_input in = {data, bytes};
    struct expected by_sink = {0}, by_buffer = {0}, by_line = {0}, by_little = {0};
    struct ps_json j;

    /* What the sink gets does not depend on the room for gathering. */
    written_bytes = 0;
    ps_json_init_sink(&j, buffer, 1 + bytes % 50, take_text, NULL);
    int error = make_calls(&j, &by_sink, in);
    check(&by_sink, error, written, written_bytes);
    ps_json_init_buffer(&j, buffer, sizeof buffer);
    fuzz_require(make_calls(&j, &by_buffer, in) == error);
    fuzz_require(error || (strlen(buffer) == written_bytes && !memcmp(buffer, written, written_bytes)));
    ps_json_init_line(&j, buffer, sizeof buffer);
    fuzz_require(make_calls(&j, &by_line, in) == error);
    check(&by_line, error, buffer, strlen(buffer));
    /* A buffer that is too small is full, and not overrun. */
    char *little = fuzz_allocate(1 + bytes % 50);
    ps_json_init_buffer(&j, little, 1 + bytes % 50);
    int too_little = make_calls(&j, &by_little, in);
    fuzz_require(strlen(little) <= bytes % 50 && (error || written_bytes <= bytes % 50 || too_little == -ENOSPC));
    free(little);
    json_free(by_sink.root);
    json_free(by_buffer.root);
    json_free(by_line.root);
    json_free(by_little.root);
    return 0;
}
