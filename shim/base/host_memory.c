#include "base/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* /proc/self/mountinfo of a busy container host runs to tens of KiB. */
#define MOUNTINFO_BYTES_MAX (256 * 1024)

/*
 * Reads a file in pieces and passes its lines to `each`, without their newlines. A line longer than
 * the buffer is cut, and its rest is skipped. Stops when `each` returns false.
 */
typedef bool (*line_fn)(char *line, void *ctx);

static int read_lines(const char *path, line_fn each, void *ctx)
{
    char buffer[4096];
    size_t held = 0, total = 0;
    bool skipping = false; /* the rest of a line that was too long */
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t got = read(fd, buffer + held, sizeof buffer - 1 - held);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int error = -errno;
            close(fd);
            return error;
        }
        held += (size_t)got;
        total += (size_t)got;
        bool last = got == 0 || total > MOUNTINFO_BYTES_MAX;
        size_t start = 0;
        for (;;) {
            char *newline = memchr(buffer + start, '\n', held - start);
            size_t end = newline ? (size_t)(newline - buffer) : held;
            bool full = start == 0 && held == sizeof buffer - 1;
            if (!newline && !full && !(last && held > start))
                break;
            buffer[end] = '\0';
            bool go_on = skipping || each(buffer + start, ctx);
            skipping = !newline;
            start = newline ? end + 1 : end;
            if (!go_on) {
                close(fd);
                return 0;
            }
        }
        memmove(buffer, buffer + start, held - start);
        held -= start;
        if (last)
            break;
    }
    close(fd);
    return 0;
}

/*
 * Reads decimal digits. Returns the text behind them; NULL if the text has no digits or the number
 * does not fit.
 */
static const char *parse_u64(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    if (*text < '0' || *text > '9')
        return NULL;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    *out = value;
    return text;
}

/* Returns whether the line is `KEY` followed by blanks and a number. */
static bool line_value(const char *line, const char *key, uint64_t *out)
{
    size_t bytes = strlen(key);

    if (strncmp(line, key, bytes) != 0)
        return false;
    line += bytes;
    line += strspn(line, " \t");
    return parse_u64(line, out) != NULL;
}

struct meminfo {
    uint64_t total_kib;
    uint64_t available_kib;
    bool has_total;
    bool has_available;
};

static bool take_meminfo_line(char *line, void *ctx)
{
    struct meminfo *m = ctx;

    if (line_value(line, "MemTotal:", &m->total_kib))
        m->has_total = true;
    else if (line_value(line, "MemAvailable:", &m->available_kib))
        m->has_available = true;
    return !(m->has_total && m->has_available);
}

static int read_machine(const char *root, struct ps_host_memory *out)
{
    char path[PATH_MAX];
    struct meminfo m = {0};

    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int rc = read_lines(path, take_meminfo_line, &m);
    if (rc != 0)
        return rc;
    if (!m.has_total || !m.has_available || m.total_kib > UINT64_MAX / 1024 || m.available_kib > m.total_kib)
        return -EINVAL;
    out->machine_total = m.total_kib * 1024;
    out->machine_available = m.available_kib * 1024;
    return 0;
}

/* The two kinds of memory controller. The names of their files differ. */
struct controller {
    const char *limit_file;
    const char *usage_file;
    const char *reclaimable_key; /* key in memory.stat: file pages that go first when memory gets short */
};

static const struct controller controller_v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                                "total_inactive_file"};
static const struct controller controller_v2 = {"memory.max", "memory.current", "inactive_file"};

/* The process's memory cgroup: its path, and the mount through which it can be read. */
struct cgroup {
    const struct controller *controller; /* NULL: none found yet */
    char path[PATH_MAX];                 /* path as in /proc/self/cgroup */
    char mount_root[PATH_MAX];           /* the cgroup at the top of the mount */
    char mount_point[PATH_MAX];
};

static bool copy_text(char *out, size_t size, const char *text)
{
    size_t bytes = strlen(text);

    if (bytes >= size)
        return false;
    memcpy(out, text, bytes + 1);
    return true;
}

/* Returns whether `word` is one of the comma-separated words of `list`. */
static bool list_has(const char *list, const char *word)
{
    size_t bytes = strlen(word);

    for (;;) {
        size_t entry = strcspn(list, ",");
        if (entry == bytes && memcmp(list, word, bytes) == 0)
            return true;
        if (list[entry] == '\0')
            return false;
        list += entry + 1;
    }
}

/*
 * Takes a line of /proc/self/cgroup: `ID:CONTROLLERS:PATH`. ID 0 without controllers is version 2.
 * On hybrid systems the memory controller can still be on a version 1 line, which then counts.
 */
static bool take_cgroup_line(char *line, void *ctx)
{
    struct cgroup *cg = ctx;
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!path)
        return true;
    *controllers++ = '\0';
    *path++ = '\0';
    if (list_has(controllers, "memory")) {
        if (copy_text(cg->path, sizeof cg->path, path))
            cg->controller = &controller_v1;
        return false;
    }
    if (strcmp(line, "0") == 0 && controllers[0] == '\0' && copy_text(cg->path, sizeof cg->path, path))
        cg->controller = &controller_v2;
    return true;
}

/*
 * Decodes a path of mountinfo in place. Blanks, tabs, newlines and backslashes are three octal
 * digits there.
 */
static void decode_octal(char *text)
{
    char *out = text;

    while (*text) {
        if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' && text[2] <= '7' && text[3] >= '0' &&
            text[3] <= '7') {
            *out++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 4;
        } else {
            *out++ = *text++;
        }
    }
    *out = '\0';
}

/*
 * Takes a line of /proc/self/mountinfo: `ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [TAGS...] -
 * TYPE SOURCE SUPER_OPTIONS`. Takes the first mount of the controller's file system.
 */
static bool take_mount_line(char *line, void *ctx)
{
    struct cgroup *cg = ctx;
    char *separator = strstr(line, " - ");
    char *fields[6], *save = NULL;

    if (!separator)
        return true;
    *separator = '\0';
    size_t count = 0;
    for (char *word = strtok_r(line, " ", &save); word && count < 6; word = strtok_r(NULL, " ", &save))
        fields[count++] = word;
    char *type = strtok_r(separator + 3, " ", &save);
    strtok_r(NULL, " ", &save); /* skips the source */
    char *options = strtok_r(NULL, " ", &save);
    if (count < 5 || !type || !options)
        return true;
    bool wanted = cg->controller == &controller_v2 ? strcmp(type, "cgroup2") == 0
                                                   : strcmp(type, "cgroup") == 0 && list_has(options, "memory");
    if (!wanted)
        return true;
    decode_octal(fields[3]);
    decode_octal(fields[4]);
    if (!copy_text(cg->mount_root, sizeof cg->mount_root, fields[3]) ||
        !copy_text(cg->mount_point, sizeof cg->mount_point, fields[4]))
        cg->mount_point[0] = '\0';
    return false;
}

/*
 * Takes the number at the start of a file, or PS_HOST_MEMORY_NO_LIMIT if the line has no number
 * (`max`). Returns false to stop reading.
 */
static bool take_number(char *line, void *ctx)
{
    uint64_t *number = ctx;

    if (!parse_u64(line, number))
        *number = PS_HOST_MEMORY_NO_LIMIT;
    return false;
}

struct stat_key {
    const char *key;
    uint64_t value;
};

static bool take_stat_line(char *line, void *ctx)
{
    struct stat_key *stat = ctx;

    return !line_value(line, stat->key, &stat->value);
}

static uint64_t read_number(const char *directory, const char *file)
{
    char path[2 * PATH_MAX];
    uint64_t number = PS_HOST_MEMORY_NO_LIMIT;

    if (snprintf(path, sizeof path, "%s/%s", directory, file) >= (int)sizeof path)
        return PS_HOST_MEMORY_NO_LIMIT;
    read_lines(path, take_number, &number);
    return number;
}

/*
 * Version 1 writes "no limit" as the highest multiple of a page that fits a signed 64-bit number.
 * No machine has half of that memory.
 */
#define V1_NO_LIMIT (UINT64_C(1) << 62)

/* Lowers the figures to the cgroup's limit and to the memory that the limit leaves. */
static void apply_cgroup(const struct controller *controller, const char *directory, struct ps_host_memory *out)
{
    uint64_t limit = read_number(directory, controller->limit_file);
    if (limit >= V1_NO_LIMIT)
        return;
    if (limit < out->cgroup_limit)
        out->cgroup_limit = limit;

    uint64_t usage = read_number(directory, controller->usage_file);
    if (usage == PS_HOST_MEMORY_NO_LIMIT)
        return;
    char path[2 * PATH_MAX];
    struct stat_key reclaimable = {controller->reclaimable_key, 0};
    if (snprintf(path, sizeof path, "%s/memory.stat", directory) < (int)sizeof path)
        read_lines(path, take_stat_line, &reclaimable);
    usage = reclaimable.value < usage ? usage - reclaimable.value : 0;
    uint64_t available = usage < limit ? limit - usage : 0;
    if (available < out->cgroup_available)
        out->cgroup_available = available;
}

/*
 * Returns the part of the cgroup's path below the top of the mount. In a container the two often do
 * not match: the path is the host's, or has /.. in it. Then the mount's top is the cgroup to read,
 * since the process sees no other.
 */
static const char *path_below_mount(const struct cgroup *cg)
{
    size_t root_bytes = strlen(cg->mount_root);

    if (root_bytes == 1) /* "/" */
        root_bytes = 0;
    if (strstr(cg->path, "/..") || strncmp(cg->path, cg->mount_root, root_bytes) != 0)
        return "";
    const char *below = cg->path + root_bytes;
    return *below == '/' && below[1] != '\0' ? below : "";
}

/*
 * The structure is large for the stack of a small thread. But this runs at the start, and seldom
 * later.
 */
static void read_cgroups(const char *root, struct ps_host_memory *out)
{
    struct cgroup cg = {0};
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (read_lines(path, take_cgroup_line, &cg) != 0 || !cg.controller)
        return;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    if (read_lines(path, take_mount_line, &cg) != 0 || cg.mount_point[0] == '\0')
        return;

    int top_bytes = snprintf(path, sizeof path, "%s%s", root, cg.mount_point);
    int bytes = snprintf(path, sizeof path, "%s%s%s", root, cg.mount_point, path_below_mount(&cg));
    if (bytes >= (int)sizeof path)
        return;
    /*
     * Walks from the process's own cgroup up to the mount's top: each cgroup may limit all below
     * it.
     */
    for (;;) {
        apply_cgroup(cg.controller, path, out);
        char *slash = strrchr(path, '/');
        if (!slash || slash - path < top_bytes)
            break;
        *slash = '\0';
    }
}

int ps_host_memory_read(const char *root, struct ps_host_memory *out)
{
    int saved_errno = errno;
    struct ps_host_memory m = {0, 0, PS_HOST_MEMORY_NO_LIMIT, PS_HOST_MEMORY_NO_LIMIT};
    int rc = read_machine(root, &m);

    if (rc == 0) {
        read_cgroups(root, &m);
        *out = m;
    }
    errno = saved_errno;
    return rc;
}

uint64_t ps_host_memory_total(const struct ps_host_memory *m)
{
    return m->machine_total < m->cgroup_limit ? m->machine_total : m->cgroup_limit;
}

uint64_t ps_host_memory_available(const struct ps_host_memory *m)
{
    return m->machine_available < m->cgroup_available ? m->machine_available : m->cgroup_available;
}

/*
 * Reads DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, with 4 to 8 digits for the domain. Writes it in
 * lower case, as in /sys.
 */
static bool pci_name_lower(const char *name, char *out, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    size_t bytes = strlen(name);

    if (bytes >= size || bytes < 12)
        return false;
    static const char tail_shape[] = "hhhh:hh:hh.h";
    for (size_t i = 0; i < bytes; i++) {
        char shape = i < bytes - 12 ? 'h' : tail_shape[i - (bytes - 12)];
        char c = name[i] >= 'A' && name[i] <= 'F' ? (char)(name[i] - 'A' + 'a') : name[i];
        if (shape == 'h' ? !memchr(hex, c, 16) : c != shape)
            return false;
        out[i] = c;
    }
    out[bytes] = '\0';
    return true;
}

int ps_host_memory_numa_node(const char *root, const char *pci_device)
{
    char name[17];
    char path[PATH_MAX];
    uint64_t node = PS_HOST_MEMORY_NO_LIMIT;

    if (!pci_name_lower(pci_device, name, sizeof name))
        return -EINVAL;
    /* The driver may write the domain with 8 digits. /sys uses 4 unless more are needed. */
    const char *shown = name;
    while (strlen(shown) > 12 && *shown == '0')
        shown++;
    if (snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/numa_node", root, shown) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int saved_errno = errno;
    int rc = read_lines(path, take_number, &node);
    errno = saved_errno;
    return rc == 0 && node <= INT_MAX ? (int)node : -ENODEV;
}

uint64_t ps_host_memory_addresses(uint64_t most)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return most;
    while (most > 1 && most > limit.rlim_cur / 8)
        most /= 2;
    return most;
}
