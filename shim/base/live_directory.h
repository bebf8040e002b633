/*
 * Where live pages lie, whose they are, and which of them are left over. A page is the file PID-NAMESPACE in a directory of its user's own:
 * $XDG_RUNTIME_DIR/penstock, or else /dev/shm/penstock-UID. Both are memory: a page of a disk's file would be written to the disk now and then, and the
 * trainer wait for it. The directory is made with mode 0700. One that is a link, that is somebody else's or that others may enter is not used.
 *
 * Threads: any; no state.
 */
#ifndef PS_LIVE_DIRECTORY_H
#define PS_LIVE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/live_page.h"

#define PS_LIVE_DIRECTORIES 2u
#define PS_LIVE_PATH_BYTES 4096
#define PS_LIVE_NAME_BYTES 48

/*
 * Opens one of the directories; `make`: it is made if it isn't there. Returns the descriptor, for the caller to close, and the path; or -ENOENT: there is
 * none; -EPERM: it can't be trusted; -ENOTSUP: it is not memory (only with `make`); other -errno.
 */
int ps_live_directory_open(unsigned which, bool make, char path[PS_LIVE_PATH_BYTES]);

/* Opens the first of them that serves, made if need be, as above; the last one's error if none does. */
int ps_live_directory_open_any(char path[PS_LIVE_PATH_BYTES]);

/* The identity of a process of this pid namespace. 0; -ESRCH: there is none, or it is over and nobody has asked how it ended. */
int ps_live_identity_of(pid_t pid, struct ps_live_identity *out);

/* Whether that process of this pid namespace lives, and is the program that it was. */
bool ps_live_identity_lives(const struct ps_live_identity *of);

/* The name of that process's page. */
void ps_live_name(char name[PS_LIVE_NAME_BYTES], const struct ps_live_identity *of);

/* What ranks tell each other (rank_exchange.h) lies here too: files named NOTE PID-NAMESPACE and more, each of which begins so. */
#define PS_LIVE_NOTE "told-"
#define PS_LIVE_NOTE_MAGIC "penpeer1"
struct ps_live_note {
    char magic[8];
    struct ps_live_identity identity;
};

enum ps_live_found {
    PS_LIVE_FOUND_LIVES,
    PS_LIVE_FOUND_LEFT_OVER,     /* its process is gone, or has become another program */
    PS_LIVE_FOUND_ELSEWHERE,     /* its process is in another pid namespace: whether it lives can't be told from here */
    PS_LIVE_FOUND_OTHER_VERSION, /* it lives, and its layout is another: nothing but the version of `header` counts */
    PS_LIVE_FOUND_NO_PAGE,       /* something else, or it is just being made */
};

/* What the file of that name is. Where it lives, *header is filled, and *fd open for the caller to close; else *fd is -1. */
enum ps_live_found ps_live_look_at(int directory, const char *name, struct ps_live_header *header, int *fd);

/* Each page of a directory in turn; those that are left over, and notes that are, are removed and not told of. `fd` and `header` live until it returns. */
typedef void (*ps_live_page_fn)(enum ps_live_found found, const char *name, int fd, const struct ps_live_header *header, void *ctx);
void ps_live_each(int directory, ps_live_page_fn page, void *ctx);

#endif
