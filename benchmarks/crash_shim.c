/* Stops a process at each call by which it changes a file below a folder, or fills its disk.
 *
 * Preloaded, it stands before the C library's functions that change files, so it sees Python's
 * calls, SQLite's and DuckDB's. Calls are counted from 1.
 *
 *   crash_watch  Each call tells its name through a pipe and waits for an answer before it is made,
 *                and a write waits again when its first half is made. So another process can copy
 *                the folder as a kill at that moment would leave it.
 *   crash_fill   From call number `at` on, calls that need room fail, as on a full disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, WATCH, FULL };

static char root[PATH_MAX];
static size_t root_length;
static int mode, at, calls, telling, answering;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void begin(const char *folder, int how)
{
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
    calls = 0;
    mode = how;
}

/* Tell something, and wait until it was heard. */
void crash_tell(const char *what)
{
    char answer;
    syscall(SYS_write, telling, what, strlen(what));
    syscall(SYS_read, answering, &answer, 1);
}

void crash_watch(const char *folder, int to, int from)
{
    telling = to, answering = from;
    begin(folder, WATCH);
}

void crash_fill(const char *folder, int number)
{
    at = number;
    begin(folder, FULL);
}

void crash_disarm(void) { mode = OFF; }

static __thread char where[PATH_MAX];
/* The path of the call, as far as it is known. */

static int is_below(const char *path)
{
    snprintf(where, sizeof where, "%s", path);
    return strncmp(path, root, root_length) == 0;
}

static int is_ours(int file)
{
    char link[64], path[PATH_MAX];
    struct stat found;
    if (mode == OFF || fstat(file, &found) || !S_ISREG(found.st_mode))
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
    if (mode == OFF)
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

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Take the turn of a call and return whether it fails for want of room. */
static int is_refused(const char *name, int grows)
{
    char told[PATH_MAX + 32];
    pthread_mutex_lock(&turn);
    calls++;
    if (mode == WATCH) {
        snprintf(told, sizeof told, "%s%s %s", name, grows ? "+" : "", where);
        crash_tell(told);
    }
    return mode == FULL && grows && calls >= at;
}

/* A call that takes room where `grows`. A thread at a time makes one, so that a copy is whole. */
#define CALL(ours, name, grows, failed, real)   \
    do {                                        \
        if (!(ours))                            \
            return real;                        \
        if (is_refused(name, grows)) {          \
            pthread_mutex_unlock(&turn);        \
            failed;                             \
        }                                       \
        __typeof__(real) done = real;           \
        int error = errno;                      \
        pthread_mutex_unlock(&turn);            \
        errno = error;                          \
        return done;                            \
    } while (0)
#define FULL_DISK do { errno = ENOSPC; return -1; } while (0)

/* A write, which a kill can tear: `real` writes `length` bytes from the byte `from` on. */
#define WRITE(real)                                                   \
    do {                                                              \
        size_t from = 0, length = size;                               \
        if (!is_ours(file))                                           \
            return real;                                              \
        if (is_refused("write", 1)) {                                 \
            pthread_mutex_unlock(&turn);                              \
            FULL_DISK;                                                \
        }                                                             \
        ssize_t done = 0;                                             \
        if (mode == WATCH && size > 1) {                              \
            length = size / 2;                                        \
            done = real;                                              \
            crash_tell("torn");                                     \
            from = done > 0 ? done : 0, length = size - from;         \
        }                                                             \
        ssize_t more = real;                                          \
        int error = errno;                                            \
        pthread_mutex_unlock(&turn);                                  \
        errno = error;                                                \
        return more < 0 ? more : from + more;                         \
    } while (0)

ssize_t write(int file, const void *bytes, size_t size)
{
    WRITE(REAL(write)(file, bytes + from, length));
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t place)
{
    WRITE(REAL(pwrite)(file, bytes + from, length, place + from));
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t place)
{
    WRITE(REAL(pwrite64)(file, bytes + from, length, place + from));
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    CALL(is_ours(file), "write", 1, FULL_DISK, REAL(writev)(file, parts, count));
}

ssize_t sendfile(int file, int source, off_t *place, size_t size)
{
    WRITE(REAL(sendfile)(file, source, place, length));
}

ssize_t sendfile64(int file, int source, off64_t *place, size_t size)
{
    WRITE(REAL(sendfile64)(file, source, place, length));
}

int fsync(int file) { CALL(mode != OFF && is_ours_at(file, "."), "sync", 0, FULL_DISK, REAL(fsync)(file)); }
int fdatasync(int file) { CALL(is_ours(file), "sync", 0, FULL_DISK, REAL(fdatasync)(file)); }
int ftruncate(int file, off_t size) { CALL(is_ours(file), "truncate", 0, FULL_DISK, REAL(ftruncate)(file, size)); }
int ftruncate64(int file, off64_t size) { CALL(is_ours(file), "truncate", 0, FULL_DISK, REAL(ftruncate64)(file, size)); }

int posix_fallocate(int file, off_t place, off_t size)
{
    CALL(is_ours(file), "allocate", 1, return ENOSPC, REAL(posix_fallocate)(file, place, size));
}

int posix_fallocate64(int file, off64_t place, off64_t size)
{
    CALL(is_ours(file), "allocate", 1, return ENOSPC, REAL(posix_fallocate64)(file, place, size));
}

int rename(const char *old, const char *new) { CALL(is_ours_at(AT_FDCWD, new), "rename", 0, FULL_DISK, REAL(rename)(old, new)); }

int renameat(int from, const char *old, int to, const char *new)
{
    CALL(is_ours_at(to, new), "rename", 0, FULL_DISK, REAL(renameat)(from, old, to, new));
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    CALL(is_ours_at(to, new), "rename", 0, FULL_DISK, REAL(renameat2)(from, old, to, new, flags));
}

int unlink(const char *path) { CALL(is_ours_at(AT_FDCWD, path), "unlink", 0, FULL_DISK, REAL(unlink)(path)); }

int unlinkat(int folder, const char *path, int flags)
{
    CALL(is_ours_at(folder, path), "unlink", 0, FULL_DISK, REAL(unlinkat)(folder, path, flags));
}

int rmdir(const char *path) { CALL(is_ours_at(AT_FDCWD, path), "unlink", 0, FULL_DISK, REAL(rmdir)(path)); }
int link(const char *old, const char *new) { CALL(is_ours_at(AT_FDCWD, new), "link", 1, FULL_DISK, REAL(link)(old, new)); }

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    CALL(is_ours_at(to, new), "link", 1, FULL_DISK, REAL(linkat)(from, old, to, new, flags));
}

int symlink(const char *target, const char *path) { CALL(is_ours_at(AT_FDCWD, path), "link", 1, FULL_DISK, REAL(symlink)(target, path)); }
int mkdir(const char *path, mode_t rights) { CALL(is_ours_at(AT_FDCWD, path), "mkdir", 1, FULL_DISK, REAL(mkdir)(path, rights)); }

int mkdirat(int folder, const char *path, mode_t rights)
{
    CALL(is_ours_at(folder, path), "mkdir", 1, FULL_DISK, REAL(mkdirat)(folder, path, rights));
}

static int is_absent(int folder, const char *path)
{
    return faccessat(folder, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
}

/* A file that is there is opened as ever; only one that is made, or emptied, counts. */
static int makes(int folder, const char *path, int flags)
{
    if (mode == OFF || !(flags & (O_CREAT | O_TRUNC)) || !is_ours_at(folder, path))
        return 0;
    return (flags & O_TRUNC) || is_absent(folder, path);
}

#define OPEN(name, ...)                                                           \
    mode_t rights = 0;                                                            \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                        \
        va_list more;                                                             \
        va_start(more, flags);                                                    \
        rights = va_arg(more, mode_t);                                            \
        va_end(more);                                                             \
    }                                                                             \
    CALL(makes(folder, path, flags), "create", is_absent(folder, path), FULL_DISK, \
         REAL(name)(__VA_ARGS__, rights))

int open(const char *path, int flags, ...) { int folder = AT_FDCWD; OPEN(open, path, flags); }
int open64(const char *path, int flags, ...) { int folder = AT_FDCWD; OPEN(open64, path, flags); }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder, path, flags); }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder, path, flags); }
