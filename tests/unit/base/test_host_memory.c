/*
 * Memory figures read from made-up /proc and /sys trees: plain machines, both cgroup versions,
 * containers, and files with nonsense in them.
 */
#include "base/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"

#define MIB (UINT64_C(1) << 20)

static char root[64];

/* Writes a file below the root, making the directories on the way. */
static void put(const char *path, const char *text)
{
    char whole[PATH_MAX];

    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0755);
        *slash = '/';
    }
    int fd = open(whole, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    EXPECT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_tree(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* A new tree with a machine of 1000 MiB, 600 of it free, and nothing else. */
static void new_tree(void)
{
    if (root[0])
        remove_tree();
    strcpy(root, "/tmp/penstock-test-host-XXXXXX");
    EXPECT(mkdtemp(root) != NULL);
    put("/proc/meminfo",
        "MemTotal:        1024000 kB\nMemFree:           1000 kB\nMemAvailable:     614400 kB\nBuffers: 5 kB\n");
}

static struct ps_host_memory read_tree(void)
{
    struct ps_host_memory m = {1, 1, 1, 1};

    EXPECT_INT(0, ps_host_memory_read(root, &m));
    EXPECT_U64(1000 * MIB, m.machine_total);
    EXPECT_U64(600 * MIB, m.machine_available);
    return m;
}

static void expect_no_limit(void)
{
    struct ps_host_memory m = read_tree();

    EXPECT_U64(PS_HOST_MEMORY_NO_LIMIT, m.cgroup_limit);
    EXPECT_U64(PS_HOST_MEMORY_NO_LIMIT, m.cgroup_available);
    EXPECT_U64(1000 * MIB, ps_host_memory_total(&m));
    EXPECT_U64(600 * MIB, ps_host_memory_available(&m));
}

static void test_plain_machine(void)
{
    new_tree();
    expect_no_limit();
}

static void test_bad_meminfo(void)
{
    static const char *const bad[] = {
        "",
        "MemTotal: 1000 kB\n",
        "MemAvailable: 1000 kB\n",
        "MemTotal: lots kB\nMemAvailable: 10 kB\n",
        "MemTotal: 10 kB\nMemAvailable: 11 kB\n",
        "MemTotal: 99999999999999999999999 kB\nMemAvailable: 10 kB\n",
        "MemTotal: 18446744073709551615 kB\nMemAvailable: 10 kB\n",
    };
    struct ps_host_memory m = {7, 7, 7, 7};

    new_tree();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("/proc/meminfo", bad[i]);
        EXPECT_INT(-EINVAL, ps_host_memory_read(root, &m));
    }
    EXPECT_INT(-ENOENT, ps_host_memory_read("/nonexistent", &m));
    EXPECT_U64(7, m.machine_total); /* left alone */
    /* The last line without a newline. */
    put("/proc/meminfo", "MemTotal: 20 kB\nMemAvailable: 10 kB");
    EXPECT_INT(0, ps_host_memory_read(root, &m));
    EXPECT_U64(10 * 1024, m.machine_available);
}

#define V2_MOUNT "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void test_version_2_nested(void)
{
    new_tree();
    put("/proc/self/cgroup", "0::/user.slice/job.scope\n");
    put("/proc/self/mountinfo", "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n" V2_MOUNT);
    put("/sys/fs/cgroup/user.slice/job.scope/memory.max", "max\n");
    expect_no_limit();

    /* The parent's limit holds for the child. */
    put("/sys/fs/cgroup/user.slice/memory.max", "524288000\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "104857600\n");
    put("/sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 52428800\nactive_file 9\n");
    struct ps_host_memory m = read_tree();
    EXPECT_U64(500 * MIB, m.cgroup_limit);
    EXPECT_U64(450 * MIB, m.cgroup_available); /* file pages that can go don't count as used */
    EXPECT_U64(500 * MIB, ps_host_memory_total(&m));
    EXPECT_U64(450 * MIB, ps_host_memory_available(&m));

    /*
     * A child with a higher limit changes nothing; one with a lower limit does. The two least
     * figures may come from different levels.
     */
    put("/sys/fs/cgroup/user.slice/job.scope/memory.max", "629145600\n");
    put("/sys/fs/cgroup/user.slice/job.scope/memory.current", "419430400\n");
    m = read_tree();
    EXPECT_U64(500 * MIB, m.cgroup_limit);
    EXPECT_U64(200 * MIB, m.cgroup_available);
    put("/sys/fs/cgroup/user.slice/job.scope/memory.max", "209715200\n");
    m = read_tree();
    EXPECT_U64(200 * MIB, m.cgroup_limit);
    EXPECT_U64(0, m.cgroup_available); /* over its limit already */

    /* The mount's own top counts too; a sibling's limit doesn't. */
    put("/sys/fs/cgroup/memory.max", "1048576\n");
    put("/sys/fs/cgroup/other.slice/memory.max", "4096\n");
    EXPECT_U64(MIB, read_tree().cgroup_limit);
    /* Files above the mount don't count. */
    put("/sys/fs/memory.max", "4096\n");
    EXPECT_U64(MIB, read_tree().cgroup_limit);
    /* A limit of 0 is a limit. */
    put("/sys/fs/cgroup/user.slice/memory.max", "0\n");
    EXPECT_U64(0, read_tree().cgroup_limit);
}

static void test_version_2_container(void)
{
    /* A cgroup namespace: the path is seen from inside. */
    new_tree();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/memory.max", "104857600\n");
    EXPECT_U64(100 * MIB, read_tree().cgroup_limit);
    /* A process moved above the namespace's root. */
    put("/proc/self/cgroup", "0::/../../elsewhere\n");
    put("/sys/elsewhere/memory.max", "4096\n"); /* followed as a path, this leads to no cgroup */
    EXPECT_U64(100 * MIB, read_tree().cgroup_limit);
    /* The mount shows a part of the tree, the path is the host's. */
    put("/proc/self/cgroup", "0::/docker/abc/inner\n");
    put("/proc/self/mountinfo", "30 24 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/inner/memory.max", "52428800\n");
    EXPECT_U64(50 * MIB, read_tree().cgroup_limit);
    /*
     * A path that only begins with the same letters is another cgroup. Only the mount's top is
     * visible then.
     */
    put("/proc/self/cgroup", "0::/docker/abcd/inner\n");
    EXPECT_U64(100 * MIB, read_tree().cgroup_limit);
}

static void test_version_1(void)
{
    new_tree();
    put("/proc/self/cgroup", "12:cpu,cpuacct:/other\n9:memory:/slurm/job\n1:name=systemd:/x\n0::/init.scope\n");
    put("/proc/self/mountinfo", "25 24 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "26 24 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                                "27 24 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* how it writes "none" */
    put("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
    expect_no_limit();
    put("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "314572800\n");
    put("/sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "209715200\n");
    put("/sys/fs/cgroup/memory/slurm/memory.stat", "inactive_file 1\ntotal_inactive_file 104857600\n");
    put("/sys/fs/cgroup/unified/init.scope/memory.max", "4096\n"); /* not where the memory controller is */
    struct ps_host_memory m = read_tree();
    EXPECT_U64(300 * MIB, m.cgroup_limit);
    EXPECT_U64(200 * MIB, m.cgroup_available);
}

static void test_odd_files(void)
{
    new_tree();
    put("/proc/self/cgroup", "nonsense\n::\n0\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/memory.max", "4096\n");
    expect_no_limit();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", "30 24 0:26 / - cgroup2\nshort - line\n - - - \n\n");
    expect_no_limit();
    put("/proc/self/mountinfo", "");
    expect_no_limit();

    /* Blanks in a mount point are written in octal. A line longer than any buffer is skipped. */
    static char text[20000];
    memset(text, 'l', 12000);
    strcpy(text + 12000, " - cgroup2 x y\n31 24 0:26 / /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/mountinfo", text);
    put("/sys/fs/my cgroup/memory.max", "2097152\n");
    EXPECT_U64(2 * MIB, read_tree().cgroup_limit);
    put("/sys/fs/my cgroup/memory.max", "99999999999999999999999999\n");
    expect_no_limit();
    put("/sys/fs/my cgroup/memory.max", "");
    expect_no_limit();
    put("/sys/fs/my cgroup/memory.max", "-5\n");
    expect_no_limit();

    /*
     * The file is read in pieces. The mount's line lies across the end of one, at every offset near
     * it.
     */
    for (size_t lead = 4000; lead < 4200; lead++) {
        memset(text, 'l', lead);
        text[lead / 2] = '\n';
        strcpy(text + lead, "\n" V2_MOUNT);
        put("/proc/self/mountinfo", text);
        struct ps_host_memory m;
        if (!EXPECT_INT(0, ps_host_memory_read(root, &m)) || !EXPECT_U64(4096, m.cgroup_limit))
            break;
    }
}

static void test_this_machine(void)
{
    struct ps_host_memory m;

    errno = EDOM;
    EXPECT_INT(0, ps_host_memory_read("", &m));
    EXPECT_INT(EDOM, errno);
    EXPECT(m.machine_total >= 64 * MIB && m.machine_available <= m.machine_total);
    EXPECT(ps_host_memory_total(&m) <= m.machine_total && ps_host_memory_total(&m) > 0);
}

static void test_numa_node(void)
{
    new_tree();
    put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    put("/sys/bus/pci/devices/0000:1c:00.0/numa_node", "-1\n");
    put("/sys/bus/pci/devices/0000:1d:00.0/numa_node", "0\n");
    put("/sys/bus/pci/devices/10000:e1:00.0/numa_node", "3\n");
    EXPECT_INT(1, ps_host_memory_numa_node(root, "0000:1b:00.0"));
    EXPECT_INT(1, ps_host_memory_numa_node(root, "0000:1B:00.0"));
    EXPECT_INT(1, ps_host_memory_numa_node(root, "00000000:1B:00.0"));
    EXPECT_INT(0, ps_host_memory_numa_node(root, "0000:1d:00.0"));
    EXPECT_INT(3, ps_host_memory_numa_node(root, "00010000:E1:00.0"));
    EXPECT_INT(-ENODEV, ps_host_memory_numa_node(root, "0000:1c:00.0"));
    EXPECT_INT(-ENODEV, ps_host_memory_numa_node(root, "0000:1e:00.0"));
    static const char *const bad[] = {"",
                                      "1b:00.0",
                                      "0000:1b:00",
                                      "0000:1b:00.00",
                                      "0000:1g:00.0",
                                      "0000-1b:00.0",
                                      "../../../../etc",
                                      "000000000000:1b:00.0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        EXPECT_INT(-EINVAL, ps_host_memory_numa_node(root, bad[i]));
}

int main(void)
{
    test_plain_machine();
    test_bad_meminfo();
    test_version_2_nested();
    test_version_2_container();
    test_version_1();
    test_odd_files();
    test_this_machine();
    test_numa_node();
    remove_tree();
    return expect_status();
}
