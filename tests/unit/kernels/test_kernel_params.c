/*
 * Parameter layouts read from real cubins, compared with the language's rules. The cubins are in
 * tests/unit/kernels/cubins, made from params.cu there. A fixed series of spoilt copies is read as
 * well.
 */
#include "tests/fuzz/kernel_params/target.c"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/libelf.h"
#include "expect.h"

struct known {
    const char *name;
    uint32_t bytes;
    uint32_t count;
    struct ps_kernel_param params[6];
};

/*
 * The kernels of params.cu, except `aligned`. Its parameter is placed so that 64 divides its
 * address in the bank, which depends on where the bank starts.
 */
static const struct known known_kernels[] = {
    {"none", 0, 0, {{0, 0}}},
    {"one", 8, 1, {{0, 8}}},
    {"unused", 24, 3, {{0, 8}, {8, 8}, {16, 8}}},
    {"many", 40, 6, {{0, 8}, {8, 4}, {12, 1}, {16, 8}, {24, 2}, {32, 8}}},
    {"by_value", 40, 3, {{0, 4}, {8, 24}, {32, 8}}},
    {"large", 4824, 3, {{0, 4}, {8, 4808}, {4816, 8}}},
    {"_Z9templatedIfEvPT_i", 12, 2, {{0, 8}, {8, 4}}},
    {"_Z9templatedIdEvPT_i", 12, 2, {{0, 8}, {8, 4}}},
};
#define KNOWN (sizeof known_kernels / sizeof known_kernels[0])

struct image {
    uint8_t *bytes;
    size_t size;
};

/*
 * Returns a path relative to the tree's top. The tests run there, and the compiler was given this
 * file's name from there.
 */
static const char *corpus_path(void)
{
    static char path[512];
    const char *slash = strrchr(__FILE__, '/');

    snprintf(path, sizeof path, "%.*s/cubins", slash ? (int)(slash - __FILE__) : 1, slash ? __FILE__ : ".");
    return path;
}

static struct image read_seed(const char *name)
{
    char path[1024];
    struct image image = {malloc(TARGET_BYTES_MAX), 0};

    snprintf(path, sizeof path, "%s/%s", corpus_path(), name);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd >= 0 && image.bytes ? read(fd, image.bytes, TARGET_BYTES_MAX) : -1;
    if (EXPECT(got > 0))
        image.size = (size_t)got;
    else
        fprintf(stderr, "  %s: can't be read; run the tests from the tree's top\n", path);
    if (fd >= 0)
        close(fd);
    return image;
}

static unsigned kernels_told, kernels_known;

static int compare_with_known(const struct ps_kernel_layout *layout, void *ctx)
{
    const char *seed = ctx;

    kernels_told++;
    if (strcmp(layout->name, "aligned") == 0) {
        kernels_known++;
        EXPECT_U64(3, layout->count);
        EXPECT_U64(128, layout->params[1].size);
        EXPECT_U64(layout->params[1].offset + 128, layout->params[2].offset);
        EXPECT(layout->params[1].offset >= 4 && layout->params[1].offset <= 64);
        EXPECT_U64(layout->params[2].offset + 8, layout->bytes);
        return 0;
    }
    for (size_t i = 0; i < KNOWN; i++) {
        const struct known *k = &known_kernels[i];
        if (strcmp(k->name, layout->name) != 0)
            continue;
        kernels_known++;
        bool same = EXPECT_U64(k->bytes, layout->bytes) && EXPECT_U64(k->count, layout->count);
        for (uint32_t p = 0; same && p < k->count; p++)
            same = EXPECT_U64(k->params[p].offset, layout->params[p].offset) &&
                   EXPECT_U64(k->params[p].size, layout->params[p].size);
        if (!same)
            fprintf(stderr, "  in %s of %s\n", k->name, seed);
    }
    return 0;
}

static void test_known_layouts(void)
{
    static char *const seeds[] = {"params-sm_80-cuda12.cubin", "params-sm_90-cuda12.cubin", "params-sm_80-cuda13.cubin",
                                  "params-sm_90-cuda13.cubin", "params-sm_100-cuda13.cubin"};

    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct image seed = read_seed(seeds[i]);
        kernels_told = kernels_known = 0;
        EXPECT_INT(0, ps_kernel_params_parse(seed.bytes, seed.size, compare_with_known, seeds[i]));
        EXPECT_U64(KNOWN + 1, kernels_told);
        EXPECT_U64(KNOWN + 1, kernels_known);
        free(seed.bytes);
    }
}

static void test_any_alignment(void)
{
    struct image seed = read_seed("params-sm_90-cuda13.cubin");
    uint8_t *moved = malloc(seed.size + 16);

    for (size_t shift = 1; EXPECT(moved != NULL) && shift < 16; shift++) {
        memcpy(moved + shift, seed.bytes, seed.size);
        kernels_told = 0;
        EXPECT_INT(0, ps_kernel_params_parse(moved + shift, seed.size, compare_with_known, "moved"));
        EXPECT_U64(KNOWN + 1, kernels_told);
    }
    free(moved);
    free(seed.bytes);
}

static int stop_at_second(const struct ps_kernel_layout *layout, void *ctx)
{
    (void)layout;
    return ++*(int *)ctx == 2 ? -ECANCELED : 0;
}

static void test_shutdown(void)
{
    struct image seed = read_seed("params-sm_90-cuda13.cubin");
    int told = 0;

    EXPECT_INT(-ECANCELED, ps_kernel_params_parse(seed.bytes, seed.size, stop_at_second, &told));
    EXPECT_INT(2, told);
    free(seed.bytes);
}

/*
 * Finds the record with this attribute in the .nv.info section of the kernel `one`. The search is
 * by the record's bytes, which occur once in that seed.
 */
static uint8_t *find_record(struct image seed, const char *record, size_t bytes)
{
    uint8_t *found = memmem(seed.bytes, seed.size, record, bytes);

    EXPECT(found != NULL);
    return found;
}

static int ignore_layout(const struct ps_kernel_layout *layout, void *ctx)
{
    (void)layout;
    (void)ctx;
    return 0;
}

static void expect_refused(struct image seed, uint8_t *at, const char *spoilt, size_t bytes)
{
    uint8_t kept[16];

    if (!at)
        return;
    memcpy(kept, at, bytes);
    memcpy(at, spoilt, bytes);
    EXPECT_INT(-EINVAL, ps_kernel_params_parse(seed.bytes, seed.size, ignore_layout, NULL));
    memcpy(at, kept, bytes);
    EXPECT_INT(0, ps_kernel_params_parse(seed.bytes, seed.size, ignore_layout, NULL));
}

/*
 * Every kind of wrong record, each in an image that is right otherwise. The kernel is one(float *,
 * int): parameters {0, 8} and {8, 4}.
 */
static void test_wrong_records(void)
{
    struct image seed = read_seed("one-sm_90-cuda13.cubin");
    uint8_t *second = find_record(seed, "\x04\x17\x0c\0\0\0\0\0\x01\0\x08\0\0\xf0\x11\0", 16);
    uint8_t *first = find_record(seed, "\x04\x17\x0c\0\0\0\0\0\0\0\0\0\0\xf0\x21\0", 16);
    uint8_t *stated = find_record(seed, "\x03\x19\x0c\0", 4);
    uint8_t *bank = find_record(seed, "\x04\x0a\x08\0", 4);

    expect_refused(seed, second + 2, "\x0b\0", 2);         /* a parameter record of another size */
    expect_refused(seed, second + 2, "\xff\xff", 2);       /* longer than the section */
    expect_refused(seed, second, "\x05", 1);               /* a format that does not exist */
    expect_refused(seed, second + 8, "\x02\0", 2);         /* an ordinal with a gap before it */
    expect_refused(seed, second + 8, "\0\0", 2);           /* an ordinal twice */
    expect_refused(seed, second + 8, "\xff\xff", 2);       /* an ordinal out of range */
    expect_refused(seed, second + 10, "\x07\0", 2);        /* into the one before */
    expect_refused(seed, second + 10, "\0\0", 2);          /* over the one before */
    expect_refused(seed, second + 10, "\x09\0", 2);        /* past the stated end */
    expect_refused(seed, second + 12, "\0\xf0\x01\0", 4);  /* no bytes at all */
    expect_refused(seed, first + 12, "\0\xf0\xff\xff", 4); /* as large as can be said */
    expect_refused(seed, stated + 2, "\x0b\0", 2);         /* a stated size that is too small */
    expect_refused(seed, stated + 2, "\xff\xff", 2); /* one that no kernel may have, and that the other record denies */
    expect_refused(seed, bank + 10, "\x0d\0", 2);    /* two records that state different sizes */
    expect_refused(seed, bank + 2, "\x04\0\x01\x02\x03\x04\x03\x5f", 8); /* the second of them cut short */
    expect_refused(seed, seed.bytes + 18, "\x3e\0", 2);                  /* an ELF image for another machine */
    expect_refused(seed, seed.bytes + 4, "\x01", 1);                     /* of 32 bits */
    expect_refused(seed, seed.bytes + 5, "\x02", 1);                     /* of the other byte order */
    expect_refused(seed, seed.bytes + 58, "\x20\0", 2);                  /* with section headers of another size */
    expect_refused(seed, seed.bytes + 0x28, "\xff\xff\xff\xff\xff\xff\xff\x7f",
                   8);                                    /* with section headers outside it */
    expect_refused(seed, seed.bytes + 62, "\xf0\x0f", 2); /* with names in a section that is not there */
    free(seed.bytes);
}

static void test_no_cubin(void)
{
    static const char text[256] = "#!/bin/sh\n";

    EXPECT_INT(-EINVAL, ps_kernel_params_parse(NULL, 0, ignore_layout, NULL));
    EXPECT_INT(-EINVAL, ps_kernel_params_parse(NULL, 100, ignore_layout, NULL));
    EXPECT_INT(-EINVAL, ps_kernel_params_parse("", 0, ignore_layout, NULL));
    EXPECT_INT(-EINVAL, ps_kernel_params_parse(text, sizeof text, ignore_layout, NULL));
}

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Changes a few bytes: anywhere, or in the last third, where the section headers are. */
static void spoil(struct image *image)
{
    static const uint64_t odd[] = {0,      1,      3,          4,          0x7f,       0x80,     0xff,
                                   0x7fff, 0xffff, 0x7fffffff, UINT32_MAX, UINT64_MAX, INT64_MAX};
    size_t places = 1 + next_random() % 4;

    for (size_t i = 0; i < places; i++) {
        size_t width = (size_t)1 << next_random() % 4;
        size_t from = next_random() % 2 ? image->size * 2 / 3 : 0;
        size_t at = from + next_random() % (image->size - from - width);
        uint64_t value = next_random() % 2 ? odd[next_random() % (sizeof odd / sizeof odd[0])] : next_random();
        memcpy(image->bytes + at, &value, width);
    }
    if (next_random() % 8 == 0)
        image->size = 1 + next_random() % image->size;
}

/*
 * A bounded replacement for the fuzzer: the same each time, and short. The target itself aborts if
 * a check fails.
 */
static void test_spoilt_seeds(unsigned rounds)
{
    DIR *directory = opendir(corpus_path());
    struct dirent *entry;
    unsigned seeds = 0;

    if (!EXPECT(directory != NULL))
        return;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        struct image seed = read_seed(entry->d_name);
        struct image spoilt = {malloc(seed.size), 0};
        seeds++;
        random_state = 88172645463325252u;
        EXPECT_INT(0, LLVMFuzzerTestOneInput(seed.bytes, seed.size));
        for (unsigned i = 0; spoilt.bytes && i < rounds; i++) {
            spoilt.size = seed.size;
            memcpy(spoilt.bytes, seed.bytes, seed.size);
            spoil(&spoilt);
            LLVMFuzzerTestOneInput(spoilt.bytes, spoilt.size);
        }
        free(spoilt.bytes);
        free(seed.bytes);
    }
    closedir(directory);
    EXPECT(seeds >= 6);
}

/* The shortest seed, cut to every length. */
static void test_truncated_seed(void)
{
    struct image seed = read_seed("one-sm_90-cuda13.cubin");

    for (size_t size = 0; size < seed.size; size++)
        LLVMFuzzerTestOneInput(seed.bytes, size);
    free(seed.bytes);
}

/*
 * Behaves like a machine without libelf. An empty file of its name, in the directory that is
 * searched first, ends the search. It runs in a process of its own, because the result of the
 * search is remembered.
 */
static void test_without_libelf(void)
{
    char directory[] = "/tmp/penstock-test-XXXXXX";
    char path[64];
    int status = -1;

    if (!EXPECT(mkdtemp(directory) != NULL))
        return;
    snprintf(path, sizeof path, "%s/libelf.so.1", directory);
    close(open(path, O_CREAT | O_WRONLY, 0644));
    pid_t child = fork();
    if (child == 0) {
        setenv("LD_LIBRARY_PATH", directory, 1);
        execl("/proc/self/exe", "test_kernel_params", "without-libelf", (char *)NULL);
        _exit(127);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    unlink(path);
    rmdir(directory);
}

static int run_without_libelf(void)
{
    struct image seed = read_seed("one-sm_90-cuda13.cubin");

    EXPECT(ps_real_libelf() == NULL);
    EXPECT_INT(-ENOTSUP, ps_kernel_params_parse(seed.bytes, seed.size, ignore_layout, NULL));
    EXPECT_INT(-EINVAL, ps_kernel_params_parse(seed.bytes, 10, ignore_layout, NULL));
    free(seed.bytes);
    return expect_status();
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "without-libelf") == 0)
        return run_without_libelf();
    if (!ps_real_libelf()) {
        fprintf(stderr, "libelf.so.1 is not here\n");
        return 77;
    }
    test_known_layouts();
    test_any_alignment();
    test_shutdown();
    test_wrong_records();
    test_no_cubin();
    test_without_libelf();
    test_truncated_seed();
    test_spoilt_seeds(4000);
    return expect_status();
}
