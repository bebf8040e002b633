/* The JSON writer: its text, its refusals, and every size of buffer. */
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"

static char text[4096];
static struct ps_json json;

static void begin(void)
{
    ps_json_init_buffer(&json, text, sizeof text);
}

static void write_sample(struct ps_json *j)
{
    ps_json_begin_object(j, NULL);
    ps_json_string(j, "name", "H200 \"x\"");
    ps_json_u64(j, "bytes", UINT64_MAX);
    ps_json_i64(j, "least", INT64_MIN);
    ps_json_begin_array(j, "list");
    ps_json_u64(j, NULL, 0);
    ps_json_bool(j, NULL, true);
    ps_json_begin_object(j, NULL);
    ps_json_end(j);
    ps_json_end(j);
    ps_json_bool(j, "no", false);
    ps_json_string(j, "none", NULL);
    ps_json_begin_object(j, "nested");
    ps_json_i64(j, "x", -5);
    ps_json_begin_array(j, "y");
    ps_json_begin_array(j, NULL);
    ps_json_u64(j, NULL, 1);
    ps_json_end(j);
    ps_json_end(j);
    ps_json_end(j);
    ps_json_begin_array(j, "empty");
    ps_json_end(j);
    ps_json_end(j);
}

static const char sample[] = "{\n"
                             "  \"name\": \"H200 \\\"x\\\"\",\n"
                             "  \"bytes\": 18446744073709551615,\n"
                             "  \"least\": -9223372036854775808,\n"
                             "  \"list\": [\n"
                             "    0,\n"
                             "    true,\n"
                             "    {}\n"
                             "  ],\n"
                             "  \"no\": false,\n"
                             "  \"none\": null,\n"
                             "  \"nested\": {\n"
                             "    \"x\": -5,\n"
                             "    \"y\": [\n"
                             "      [\n"
                             "        1\n"
                             "      ]\n"
                             "    ]\n"
                             "  },\n"
                             "  \"empty\": []\n"
                             "}\n";

static void test_text(void)
{
    begin();
    write_sample(&json);
    EXPECT_INT(0, ps_json_finish(&json));
    EXPECT_TEXT(sample, text);
}

static void test_single_values(void)
{
    begin();
    ps_json_u64(&json, NULL, 10);
    EXPECT_INT(0, ps_json_finish(&json));
    EXPECT_TEXT("10\n", text);
    begin();
    ps_json_i64(&json, NULL, INT64_MAX);
    EXPECT_INT(0, ps_json_finish(&json));
    EXPECT_TEXT("9223372036854775807\n", text);
}

/* The string as it stands in the text, without the outer quotes. */
static const char *escaped(const char *value)
{
    begin();
    ps_json_string(&json, NULL, value);
    EXPECT_INT(0, ps_json_finish(&json));
    size_t bytes = strlen(text);
    if (!EXPECT(bytes >= 3 && text[0] == '"' && strcmp(text + bytes - 2, "\"\n") == 0))
        return "";
    text[bytes - 2] = '\0';
    return text + 1;
}

#define REPLACED "\xef\xbf\xbd"

static void test_strings(void)
{
    EXPECT_TEXT("", escaped(""));
    EXPECT_TEXT("a/b \\\\ \\\" \\n\\t\\r\\u0001\\u001f\\u007f", escaped("a/b \\ \" \n\t\r\x01\x1f\x7f"));
    EXPECT_TEXT("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\xb0", escaped("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\xb0"));
    EXPECT_TEXT("\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80", escaped("\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80"));
    /* The first and last character of each length. */
    EXPECT_TEXT("\\u0080 \\u009b \\u009f \xc2\xa0\xdf\xbf", escaped("\xc2\x80 \xc2\x9b \xc2\x9f \xc2\xa0\xdf\xbf"));
    EXPECT_TEXT("\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80", escaped("\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80"));
    /*
     * A lone continuation, bytes that never occur, overlong forms, a surrogate, a value too large,
     * a sequence cut short.
     */
    EXPECT_TEXT("a" REPLACED "b", escaped("a\x80"
                                          "b"));
    EXPECT_TEXT(REPLACED REPLACED, escaped("\xff\xfe"));
    EXPECT_TEXT(REPLACED REPLACED, escaped("\xc0\xaf"));
    EXPECT_TEXT(REPLACED REPLACED REPLACED, escaped("\xe0\x80\xaf"));
    EXPECT_TEXT(REPLACED REPLACED REPLACED, escaped("\xed\xa0\x80"));
    EXPECT_TEXT(REPLACED REPLACED REPLACED REPLACED, escaped("\xf4\x90\x80\x80"));
    EXPECT_TEXT(REPLACED REPLACED REPLACED REPLACED, escaped("\xf0\x80\x80\xaf"));
    EXPECT_TEXT(REPLACED, escaped("\xc3"));
    EXPECT_TEXT(REPLACED REPLACED, escaped("\xe2\x82"));
    EXPECT_TEXT(REPLACED "x", escaped("\xc3x"));
    EXPECT_TEXT(REPLACED REPLACED REPLACED "x", escaped("\xf0\x9f\x9ax"));
}

static void test_one_line(void)
{
    ps_json_init_line(&json, text, sizeof text);
    ps_json_begin_object(&json, NULL);
    ps_json_string(&json, "name", "a\nb");
    ps_json_begin_array(&json, "list");
    ps_json_thousandths(&json, NULL, 0);
    ps_json_thousandths(&json, NULL, 1050);
    ps_json_thousandths(&json, NULL, UINT64_MAX);
    ps_json_end(&json);
    ps_json_begin_object(&json, "none");
    ps_json_end(&json);
    ps_json_end(&json);
    EXPECT_INT(0, ps_json_finish(&json));
    EXPECT_TEXT("{\"name\":\"a\\nb\",\"list\":[0.000,1.050,18446744073709551.615],\"none\":{}}\n", text);
}

static void test_keys_are_escaped(void)
{
    begin();
    ps_json_begin_object(&json, NULL);
    ps_json_u64(&json, "a\"b", 1);
    ps_json_end(&json);
    EXPECT_INT(0, ps_json_finish(&json));
    EXPECT_TEXT("{\n  \"a\\\"b\": 1\n}\n", text);
}

static void test_misuse(void)
{
    begin();
    EXPECT_INT(-EINVAL, ps_json_finish(&json)); /* nothing written */
    begin();
    ps_json_begin_object(&json, NULL);
    EXPECT_INT(-EINVAL, ps_json_finish(&json)); /* left open */
    begin();
    ps_json_end(&json);
    EXPECT_INT(-EINVAL, ps_json_finish(&json));
    begin();
    ps_json_u64(&json, "key", 1); /* a key outside any object */
    EXPECT_INT(-EINVAL, ps_json_finish(&json));
    begin();
    ps_json_begin_object(&json, NULL);
    ps_json_u64(&json, NULL, 1); /* no key inside one */
    ps_json_end(&json);
    EXPECT_INT(-EINVAL, ps_json_finish(&json));
    begin();
    ps_json_begin_array(&json, NULL);
    ps_json_string(&json, "key", "x");
    ps_json_end(&json);
    EXPECT_INT(-EINVAL, ps_json_finish(&json));
    begin();
    ps_json_u64(&json, NULL, 1);
    ps_json_u64(&json, NULL, 2); /* a second text */
    EXPECT_INT(-EINVAL, ps_json_finish(&json));
    EXPECT_TEXT("1", text);
    ps_json_init_buffer(&json, NULL, 0);
    ps_json_u64(&json, NULL, 1);
    EXPECT_INT(-EINVAL, ps_json_finish(&json));
}

static void test_depth(void)
{
    for (int depth = PS_JSON_DEPTH_MAX; depth <= PS_JSON_DEPTH_MAX + 1; depth++) {
        begin();
        for (int i = 0; i < depth; i++)
            ps_json_begin_array(&json, NULL);
        for (int i = 0; i < depth; i++)
            ps_json_end(&json);
        EXPECT_INT(depth > PS_JSON_DEPTH_MAX ? -EOVERFLOW : 0, ps_json_finish(&json));
    }
}

/* A buffer of each size holds what fits, NUL included, and never a byte more. */
static void test_small_buffers(void)
{
    for (size_t capacity = 1; capacity <= sizeof sample; capacity++) {
        char *buffer = malloc(capacity); /* of exactly that size, so that a sanitizer sees one byte too many */
        if (!EXPECT(buffer != NULL))
            return;
        ps_json_init_buffer(&json, buffer, capacity);
        write_sample(&json);
        EXPECT_INT(capacity < sizeof sample ? -ENOSPC : 0, ps_json_finish(&json));
        EXPECT_U64(capacity - 1, strlen(buffer));
        EXPECT(strncmp(buffer, sample, capacity - 1) == 0);
        free(buffer);
    }
}

struct gathered {
    char text[sizeof sample];
    size_t used;
    size_t refuse_at; /* the call that fails; 0: none */
    size_t calls;
};

static int gather(const char *piece, size_t bytes, void *ctx)
{
    struct gathered *g = ctx;

    if (++g->calls == g->refuse_at)
        return -EIO;
    if (!EXPECT(g->used + bytes < sizeof g->text))
        return -ENOSPC;
    memcpy(g->text + g->used, piece, bytes);
    g->used += bytes;
    g->text[g->used] = '\0';
    return 0;
}

static void test_sinks(void)
{
    char buffer[64];

    for (size_t capacity = 1; capacity <= sizeof buffer; capacity++) {
        struct gathered g = {.used = 0};
        ps_json_init_sink(&json, buffer, capacity, gather, &g);
        write_sample(&json);
        EXPECT_INT(0, ps_json_finish(&json));
        EXPECT_TEXT(sample, g.text);
    }
    struct gathered g = {.refuse_at = 2};
    ps_json_init_sink(&json, buffer, 16, gather, &g);
    write_sample(&json);
    EXPECT_INT(-EIO, ps_json_finish(&json));
    EXPECT_U64(2, g.calls); /* not asked again after the error */
    EXPECT_U64(16, g.used);
}

static void test_file_descriptor(void)
{
    char buffer[10], back[sizeof sample] = "";
    int fds[2];

    if (!EXPECT(pipe(fds) == 0))
        return;
    ps_json_init_sink(&json, buffer, sizeof buffer, ps_json_sink_fd, &fds[1]);
    write_sample(&json);
    EXPECT_INT(0, ps_json_finish(&json));
    EXPECT_INT((long)sizeof sample - 1, (long)read(fds[0], back, sizeof back));
    EXPECT_TEXT(sample, back);
    close(fds[1]);
    ps_json_init_sink(&json, buffer, sizeof buffer, ps_json_sink_fd, &fds[0]); /* not open for writing */
    write_sample(&json);
    EXPECT_INT(-EBADF, ps_json_finish(&json));
    close(fds[0]);
}

int main(void)
{
    test_text();
    test_single_values();
    test_strings();
    test_one_line();
    test_keys_are_escaped();
    test_misuse();
    test_depth();
    test_small_buffers();
    test_sinks();
    test_file_descriptor();
    return expect_status();
}
