/* Counts what a process does to the files below a folder, and ends it at a chosen call.
 *
 * Preloaded, it stands before the C library's functions that change files, so it sees Python's
 * calls, SQLite's and DuckDB's. `crash_arm` begins to count below a folder; what it counted is read
 * with `crash_count` and `crash_names`. At call number `at` (from 1):
 *   BEFORE  the process is killed, and the call is not made
 *   AFTER   the call is made, and the process is killed
 *   TORN    the first half of a write is made, and the process is killed; other calls end as BEFORE
 *   FULL    from this call on nothing more fits on the disk
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, BEFORE, AFTER, TORN, FULL };

static char root[PATH_MAX];
static size_t root_length;
static int mode, at, calls, armed;
static char names[1 << 16];
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void crash_arm(const char *folder, int how, int number)
{
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
    mode = how, at = number, calls = 0, names[0] = 0;
    armed = 1;
}

void crash_disarm(void) { armed = 0; }
int crash_count(void) { return calls; }
const char *crash_names(void) { return names; }

static void end(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int is_below(const char *path) { return strncmp(path, root, root_length) == 0; }

static int is_ours(int file)
{
    char link[64], path[PATH_MAX];
    struct stat found;
    if (!armed || fstat(file, &found) || !S_ISREG(found.st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_below(path);
}

static int is_ours_at(int folder, const char *name)
{
    char link[64], path[PATH_MAX];
    if (!armed)
        return 0;
    if (name[0] == '/')
        return is_below(name);
    if (folder == AT_FDCWD)
        return getcwd(path, sizeof path) && is_below(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_below(path);
}

/* Count a call and return what becomes of it. */
static int next(const char *name)
{
    int what = COUNT;
    pthread_mutex_lock(&turn);
    calls++;
    if (mode == COUNT && strlen(names) + strlen(name) + 2 < sizeof names)
        strcat(strcat(names, name), " ");
    if (calls == at || (mode == FULL && at && calls >= at))
        what = mode;
    if (what == BEFORE)
        end();
    pthread_mutex_unlock(&turn);
    return what;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FULL_DISK do { errno = ENOSPC; return -1; } while (0)

/* A call that takes room where `grows`, and can be torn by doing `half`. */
#define CALL(ours, name, grows, half, real)     \
    do {                                        \
        if (!(ours))                            \
            return real;                        \
        int what = next(name);                  \
        if (what == FULL && (grows))            \
            FULL_DISK;                          \
        if (what == TORN) {                     \
            half;                               \
            end();                              \
        }                                       \
        __typeof__(real) done = real;           \
        if (what == AFTER)                      \
            end();                              \
        return done;                            \
    } while (0)

ssize_t write(int file, const void *bytes, size_t size)
{
    CALL(is_ours(file), "write", 1, (void)!REAL(write)(file, bytes, size / 2),
         REAL(write)(file, bytes, size));
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t place)
{
    CALL(is_ours(file), "write", 1, (void)!REAL(pwrite)(file, bytes, size / 2, place),
         REAL(pwrite)(file, bytes, size, place));
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t place)
{
    CALL(is_ours(file), "write", 1, (void)!REAL(pwrite64)(file, bytes, size / 2, place),
         REAL(pwrite64)(file, bytes, size, place));
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    CALL(is_ours(file), "write", 1, (void)!REAL(writev)(file, parts, count / 2),
         REAL(writev)(file, parts, count));
}

ssize_t sendfile(int file, int from, off_t *place, size_t size)
{
    CALL(is_ours(file), "write", 1, (void)!REAL(sendfile)(file, from, place, size / 2),
         REAL(sendfile)(file, from, place, size));
}

ssize_t sendfile64(int file, int from, off64_t *place, size_t size)
{
    CALL(is_ours(file), "write", 1, (void)!REAL(sendfile64)(file, from, place, size / 2),
         REAL(sendfile64)(file, from, place, size));
}

int fsync(int file) { CALL(armed && is_ours_at(file, "."), "sync", 0, , REAL(fsync)(file)); }
int fdatasync(int file) { CALL(is_ours(file), "sync", 0, , REAL(fdatasync)(file)); }
int ftruncate(int file, off_t size) { CALL(is_ours(file), "truncate", 0, , REAL(ftruncate)(file, size)); }
int ftruncate64(int file, off64_t size) { CALL(is_ours(file), "truncate", 0, , REAL(ftruncate64)(file, size)); }

int posix_fallocate(int file, off_t place, off_t size)
{
    if (is_ours(file) && mode == FULL && at && calls >= at)
        return ENOSPC;
    return REAL(posix_fallocate)(file, place, size);
}

int posix_fallocate64(int file, off64_t place, off64_t size)
{
    if (is_ours(file) && mode == FULL && at && calls >= at)
        return ENOSPC;
    return REAL(posix_fallocate64)(file, place, size);
}

int rename(const char *old, const char *new) { CALL(is_ours_at(AT_FDCWD, new), "rename", 0, , REAL(rename)(old, new)); }

int renameat(int from, const char *old, int to, const char *new)
{
    CALL(is_ours_at(to, new), "rename", 0, , REAL(renameat)(from, old, to, new));
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    CALL(is_ours_at(to, new), "rename", 0, , REAL(renameat2)(from, old, to, new, flags));
}

int unlink(const char *path) { CALL(is_ours_at(AT_FDCWD, path), "unlink", 0, , REAL(unlink)(path)); }

int unlinkat(int folder, const char *path, int flags)
{
    CALL(is_ours_at(folder, path), "unlink", 0, , REAL(unlinkat)(folder, path, flags));
}

int rmdir(const char *path) { CALL(is_ours_at(AT_FDCWD, path), "unlink", 0, , REAL(rmdir)(path)); }
int link(const char *old, const char *new) { CALL(is_ours_at(AT_FDCWD, new), "link", 1, , REAL(link)(old, new)); }

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    CALL(is_ours_at(to, new), "link", 1, , REAL(linkat)(from, old, to, new, flags));
}

int symlink(const char *target, const char *path) { CALL(is_ours_at(AT_FDCWD, path), "link", 1, , REAL(symlink)(target, path)); }
int mkdir(const char *path, mode_t rights) { CALL(is_ours_at(AT_FDCWD, path), "mkdir", 1, , REAL(mkdir)(path, rights)); }

int mkdirat(int folder, const char *path, mode_t rights)
{
    CALL(is_ours_at(folder, path), "mkdir", 1, , REAL(mkdirat)(folder, path, rights));
}

/* A file that is there is opened as ever; only one that is made, or emptied, counts. */
static int makes(int folder, const char *path, int flags)
{
    if (!armed || !(flags & (O_CREAT | O_TRUNC)) || !is_ours_at(folder, path))
        return 0;
    return (flags & O_TRUNC) || faccessat(folder, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
}

#define OPEN(name, ...)                                                           \
    mode_t rights = 0;                                                            \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                        \
        va_list more;                                                             \
        va_start(more, flags);                                                    \
        rights = va_arg(more, mode_t);                                            \
        va_end(more);                                                             \
    }                                                                             \
    CALL(makes(folder, path, flags), "create", !(flags & O_TRUNC), , REAL(name)(__VA_ARGS__, rights))

int open(const char *path, int flags, ...) { int folder = AT_FDCWD; OPEN(open, path, flags); }
int open64(const char *path, int flags, ...) { int folder = AT_FDCWD; OPEN(open64, path, flags); }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder, path, flags); }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder, path, flags); }
